"""Beam search against Hugging Face's, with a tiny random model that is recomputed from scratch for each token."""

import math
from functools import cache

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from engine.api import SamplingParams, TokenLogprob
from engine.beam import BeamSearch
from engine.detokenizer import Detokenizer
from engine.plan import Draw
from engine.sampler import Sampler

VOCAB_SIZE = 48
VOCABULARY = [chr(ord("A") + i).encode() for i in range(VOCAB_SIZE)]
EOS = 7


@cache
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCAB_SIZE,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        initializer_range=0.35,
    )
    return LlamaForCausalLM(config).eval()


def prompts(count, seed):
    generator = torch.Generator().manual_seed(seed)
    for length in range(1, count + 1):
        yield torch.randint(0, VOCAB_SIZE, (length,), generator=generator).tolist()


def search(prompt, params, *, max_tokens, eos_token_ids=()):
    """Run our beam search to its end; also returns the number of steps."""
    beams = BeamSearch(
        params,
        max_tokens=max_tokens,
        eos_token_ids=eos_token_ids,
        detokenizer=Detokenizer(VOCABULARY, params.stop),
    )
    stop_token_ids = [*eos_token_ids, *params.stop_token_ids]
    outputs, num_steps = [()], 0
    while outputs:
        banned = stop_token_ids if num_steps < params.min_tokens else ()
        draws = [Draw(params, 0, 0, 0, prompt, output, banned, beams.num_candidates) for output in outputs]
        with torch.no_grad():
            logits = model()(torch.tensor([[*prompt, *output] for output in outputs])).logits[:, -1]
        step = beams.step([drawn.top for drawn in Sampler().sample(logits, draws)])
        outputs = [(*outputs[parent], token) for parent, token in zip(step.parents, step.token_ids, strict=True)]
        num_steps += 1
    return beams.hypotheses(), num_steps


def hugging_face(prompt, *, eos=None, **options):
    """Sequences without their padding, and scores."""
    options = {"eos_token_id": eos, "pad_token_id": VOCAB_SIZE - 1, "do_sample": False, **options}
    generated = model().generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones(1, len(prompt)),
        output_scores=True,
        return_dict_in_generate=True,
        use_cache=False,
        **options,
    )
    num_tokens = (generated.beam_indices >= 0).sum(-1).tolist()
    sequences = generated.sequences[:, len(prompt) :].tolist()
    return [tuple(s[:n]) for s, n in zip(sequences, num_tokens, strict=True)], generated.sequences_scores.tolist()


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize(
    ("width", "eos", "length_penalty"),
    [(2, EOS, 1.0), (4, EOS, 0.0), (3, EOS, 2.0), (4, [EOS, 9], -1.0), (2, None, 1.0), (5, [EOS, 9, 11], 0.7)],
)
def test_sequences_and_scores_are_hugging_face_s(width, eos, length_penalty, early_stopping):
    params = SamplingParams(
        n=width, use_beam_search=True, length_penalty=length_penalty, early_stopping=early_stopping, temperature=0
    )
    eos_token_ids = [] if eos is None else [eos] if isinstance(eos, int) else eos
    for prompt in prompts(4, seed=width):
        expected, scores = hugging_face(
            prompt,
            eos=eos,
            num_beams=width,
            num_return_sequences=width,
            max_new_tokens=12,
            length_penalty=length_penalty,
            early_stopping=early_stopping,
        )
        hypotheses, _ = search(prompt, params, max_tokens=12, eos_token_ids=eos_token_ids)
        assert [h.token_ids for h in hypotheses] == expected
        assert [h.score for h in hypotheses] == pytest.approx(scores, abs=1e-4)
        assert all(h.finish_reason == ("stop" if h.token_ids[-1] in eos_token_ids else "length") for h in hypotheses)


def test_penalties_and_min_tokens_are_hugging_face_s():
    params = SamplingParams(n=2, best_of=4, use_beam_search=True, repetition_penalty=1.5, min_tokens=5)
    for prompt in prompts(5, seed=1):
        expected, scores = hugging_face(
            prompt,
            eos=EOS,
            num_beams=4,
            num_return_sequences=2,
            max_new_tokens=10,
            min_new_tokens=5,
            repetition_penalty=1.5,
        )
        hypotheses, _ = search(prompt, params, max_tokens=10, eos_token_ids=[EOS])
        assert [h.token_ids for h in hypotheses] == expected
        assert [h.score for h in hypotheses] == pytest.approx(scores, abs=1e-4)


def test_a_beam_of_one_is_greedy():
    prompt = [1, 2, 3]
    [hypothesis], num_steps = search(prompt, SamplingParams(use_beam_search=True), max_tokens=8)
    greedy = model().generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False, eos_token_id=None)
    assert list(hypothesis.token_ids) == greedy[0, 3:].tolist()
    assert num_steps == 8


def test_the_caller_s_stop_tokens_end_beams_too():
    params = SamplingParams(n=2, use_beam_search=True, stop_token_ids=(EOS,))
    for prompt in prompts(10, seed=1):
        expected, _ = search(prompt, SamplingParams(n=2, use_beam_search=True), max_tokens=10, eos_token_ids=[EOS])
        hypotheses, _ = search(prompt, params, max_tokens=10)
        assert [h.token_ids for h in hypotheses] == [h.token_ids for h in expected]
        assert all(h.stop_reason == (EOS if h.finish_reason == "stop" else None) for h in hypotheses)


def test_stop_strings_end_beams():
    """With two beams, for which one stop token asks for no more candidates, a stop string of one token is like one."""
    stop = VOCABULARY[EOS].decode()
    for prompt in prompts(10, seed=1):
        expected, _ = search(prompt, SamplingParams(n=2, use_beam_search=True), max_tokens=6, eos_token_ids=[EOS])
        hypotheses, _ = search(prompt, SamplingParams(n=2, use_beam_search=True, stop=(stop,)), max_tokens=6)
        assert [h.token_ids for h in hypotheses] == [h.token_ids for h in expected]
        assert all(h.stop_reason == (stop if h.finish_reason == "stop" else None) for h in hypotheses)


def test_stop_strings_are_found_across_tokens_and_parents():
    beams = BeamSearch(
        SamplingParams(n=2, use_beam_search=True, stop=("AC",)),
        max_tokens=5,
        eos_token_ids=(),
        detokenizer=Detokenizer(VOCABULARY, ("AC",)),
    )
    a, b, c = (TokenLogprob(i, -0.5 * i - 0.1) for i in range(3))
    assert beams.step([[a, b, c]]) == ((0, 0), (0, 1))  # beams A and B
    step = beams.step([[TokenLogprob(2, -0.1), TokenLogprob(1, -9.0)], [TokenLogprob(2, -0.2), b]])  # AC ends, BC lives
    assert step == ((1, 1), (2, 1))
    [done] = [h for h in beams.hypotheses() if h.finish_reason == "stop"]
    assert (done.token_ids, done.stop_reason) == ((0, 2), "AC")


def test_the_search_ends_when_nothing_lives_on():
    beams = BeamSearch(
        SamplingParams(n=2, use_beam_search=True), max_tokens=5, eos_token_ids=[0], detokenizer=Detokenizer(VOCABULARY)
    )
    assert beams.step([[TokenLogprob(0, -0.1)]]) == ((), ())
    [hypothesis] = beams.hypotheses()
    assert hypothesis.token_ids == (0,)


@pytest.mark.parametrize("length_penalty", [1e3, -1e3])
def test_extreme_length_penalties_give_finite_scores(length_penalty):
    params = SamplingParams(n=2, use_beam_search=True, length_penalty=length_penalty)
    hypotheses, _ = search([1, 2], params, max_tokens=6, eos_token_ids=[EOS])
    assert all(math.isfinite(h.score) for h in hypotheses)
