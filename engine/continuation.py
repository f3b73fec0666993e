"""How a drawn token continues a sequence: stop conditions, text, and which sequences are told."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.api import Notice, Output, PositionLogprobs, merge_outputs
from engine.beam import BeamSearch, Hypothesis
from engine.plan import Drawn
from engine.request import Request, Sequence


def continue_sequence(request: Request, sequence: Sequence, drawn: Drawn) -> list[Output]:
    """Append a token, decide whether it ends the sequence, and say what is new; nothing yet if only the best count."""
    token_id = drawn.token.token_id
    sequence.output_token_ids.append(token_id)
    sequence.cumulative_logprob += drawn.token.logprob
    request.num_output_tokens += 1
    text = _advance_text(request, sequence, token_id)
    output = Output(
        index=sequence.index,
        token_ids=(token_id,),
        text=text,
        finish_reason=sequence.finish_reason,
        usage=request.usage(),
        stop_reason=sequence.stop_reason,
        logprobs=(PositionLogprobs(drawn.token, drawn.top),) if request.params.logprobs is not None else (),
        prompt_logprobs=_take_prompt_logprobs(request),
    )
    if request.params.is_ranked:
        sequence.held_outputs.append(output)
        return []
    return [output]


def take_up(request: Request, token_ids: Iterable[int]) -> None:
    """Go on with an answer of which these tokens have been told: they count, and nothing of them is told again.

    It may turn out to have ended: then its finish reason is set.
    """
    sequence = request.sequences[0]
    for token_id in token_ids:
        sequence.output_token_ids.append(token_id)
        request.num_output_tokens += 1
        _advance_text(request, sequence, token_id)


def ending_output(request: Request) -> Output:
    """How an answer ended of which everything else has been told."""
    sequence = request.sequences[0]
    return Output(0, (), "", sequence.finish_reason, request.usage(), sequence.stop_reason)


def _advance_text(request: Request, sequence: Sequence, token_id: int) -> str:
    """New text after a token; sets the finish reason. A stop token adds no text of its own."""
    num_output = len(sequence.output_token_ids)
    may_stop = num_output >= request.params.min_tokens
    text = ""
    if may_stop and token_id in request.stop_token_ids:
        sequence.finish_reason = "stop"
        if token_id in request.params.stop_token_ids:
            sequence.stop_reason = token_id
    else:
        text = sequence.detokenizer.push(token_id, may_stop)
        if num_output >= request.max_tokens:
            sequence.finish_reason = "length"
    if sequence.finish_reason is not None:
        text += sequence.detokenizer.finish()
    if sequence.detokenizer.matched_stop is not None:
        sequence.finish_reason = "stop"
        sequence.stop_reason = sequence.detokenizer.matched_stop
    return text


def ranked_outputs(request: Request) -> list[Output]:
    """The ``n`` finished sequences of highest mean log-probability, best first, each told whole."""
    best = sorted(
        request.finished_sequences,
        key=lambda sequence: sequence.cumulative_logprob / len(sequence.output_token_ids),
        reverse=True,
    )
    usage = request.usage()
    return [
        replace(merge_outputs(sequence.held_outputs), index=index, usage=usage)
        for index, sequence in enumerate(best[: request.params.n])
    ]


def beam_outputs(request: Request, beam: BeamSearch) -> list[Output]:
    """The best ``n`` finished beams, best first, each told whole."""
    hypotheses = beam.hypotheses()
    request.num_output_tokens = sum(len(hypothesis.token_ids) for hypothesis in hypotheses)
    return [
        Output(
            index=index,
            token_ids=hypothesis.token_ids,
            text=_text_of(request, hypothesis),
            finish_reason=hypothesis.finish_reason,
            usage=request.usage(),
            stop_reason=hypothesis.stop_reason,
            prompt_logprobs=_take_prompt_logprobs(request),
            score=hypothesis.score,
        )
        for index, hypothesis in enumerate(hypotheses)
    ]


def _text_of(request: Request, hypothesis: Hypothesis) -> str:
    token_ids = hypothesis.token_ids
    if token_ids[-1] in request.stop_token_ids:
        token_ids = token_ids[:-1]
    detokenizer = request.new_detokenizer()
    text = "".join(
        detokenizer.push(token_id, may_stop=number >= request.params.min_tokens)
        for number, token_id in enumerate(token_ids, 1)
    )
    return text + detokenizer.finish()


def notice_output(request: Request, notice: Notice) -> Output:
    return Output(index=0, token_ids=(), text="", finish_reason=None, usage=request.usage(), notice=notice)


def _take_prompt_logprobs(request: Request) -> tuple[PositionLogprobs | None, ...] | None:
    """Told once, with the first token; the prompt's first token has no prediction."""
    if request.params.prompt_logprobs is None or not request.prompt_logprobs:
        return None
    told = (None, *request.prompt_logprobs)
    request.prompt_logprobs = []
    return told
