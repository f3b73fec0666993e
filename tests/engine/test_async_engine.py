"""The whole engine on a tiny random model: every stream ends once, and nobody is harmed by a neighbour."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import torch

from engine import (
    ConfigError,
    Engine,
    EngineConfig,
    EngineStopped,
    InvalidRequest,
    Output,
    QueueFull,
    RequestFailed,
    SamplingParams,
)
from engine.async_engine import LONG_TEXT_CHARS
from engine.loading import LoadedModel, load_model
from tests.engine.models.tiny import save_tiny

GREEDY = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    save_tiny(folder, "llama")
    return folder


def config(folder: Path, **settings: Any) -> EngineConfig:
    defaults: dict[str, Any] = {"dtype": "float32", "block_size": 8, "num_blocks": 40, "num_swap_blocks": 20}
    return EngineConfig(model=str(folder), **{**defaults, **settings})


@pytest_asyncio.fixture
async def engine(folder: Path) -> AsyncIterator[Engine]:
    async with Engine(config(folder)) as engine:
        yield engine


def prompt(number: int, length: int = 20) -> list[int]:
    return [(number * 37 + i * 11) % 318 + 2 for i in range(length)]


async def tokens(engine: Engine, prompt_ids: list[int], params: SamplingParams = GREEDY) -> list[int]:
    return [t async for output in engine.generate(prompt_ids, params) for t in output.token_ids]


def num_held(engine: Engine) -> int:
    return engine.stats().occupancy.blocks.held


async def test_outputs_of_a_mixed_batch_are_those_of_each_alone(engine: Engine) -> None:
    prompts = [prompt(number, 1 + 9 * number) for number in range(6)]
    alone = [await tokens(engine, one) for one in prompts]
    together = await asyncio.gather(*(tokens(engine, one) for one in prompts))
    assert together == alone


async def test_notices_usage_and_the_last_word(engine: Engine) -> None:
    outputs: list[Output] = [output async for output in engine.generate(prompt(1), GREEDY)]
    assert outputs[0].notice == "started"
    assert [output.finish_reason for output in outputs if output.finish_reason] == ["length"]
    assert outputs[-1].usage.completion_tokens == 12
    again = [output async for output in engine.generate(prompt(1), GREEDY)]
    assert again[-1].usage.cached_tokens == 19


async def test_closing_the_iterator_aborts_and_returns_the_blocks(engine: Engine) -> None:
    generator = engine.generate(prompt(1), SamplingParams(max_tokens=50, temperature=0, ignore_eos=True))
    async for output in generator:
        if output.token_ids:
            break
    assert num_held(engine) > 0
    await generator.aclose()
    assert num_held(engine) == 0
    assert not engine.health().busy


async def test_closing_a_stream_twice_or_after_its_end_is_fine(engine: Engine) -> None:
    stream = await engine.submit(prompt(1), GREEDY)
    async for _ in stream:
        pass
    await stream.aclose()
    await stream.aclose()


async def test_a_cancelled_reader_leaves_the_stream_usable(engine: Engine) -> None:
    stream = await engine.submit(prompt(1), GREEDY)
    reader = asyncio.ensure_future(stream.__anext__())
    await asyncio.sleep(0)
    reader.cancel()
    rest = [t async for output in stream for t in output.token_ids]
    assert rest == await tokens(engine, prompt(1))


async def test_samples_differ_and_each_ends_by_itself(engine: Engine) -> None:
    params = SamplingParams(max_tokens=30, temperature=1.5, n=3, seed=1)
    texts: dict[int, list[int]] = {0: [], 1: [], 2: []}
    ends: list[int] = []
    async for output in engine.generate(prompt(2), params):
        texts[output.index] += output.token_ids
        ends += [output.index] if output.finish_reason else []
    assert sorted(ends) == [0, 1, 2]
    assert len({tuple(text) for text in texts.values()}) == 3


async def test_best_of_returns_the_likeliest_first(engine: Engine) -> None:
    outputs = [o async for o in engine.generate(prompt(2), SamplingParams(max_tokens=8, n=2, best_of=4, seed=1))]
    told = [output for output in outputs if output.notice is None]
    assert [output.index for output in told] == [0, 1]
    assert all(output.finish_reason for output in told)


async def test_prompt_logprobs_agree_however_the_prompt_is_cut(folder: Path) -> None:
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=2)

    async def of(max_num_batched_tokens: int) -> Any:
        settings = config(folder, max_num_batched_tokens=max_num_batched_tokens, max_num_seqs=8)
        async with Engine(settings) as engine:
            outputs = [output async for output in engine.generate(prompt(3, 40), params)]
            return outputs[-1].prompt_logprobs

    whole, chunked = await of(64), await of(16)
    assert len(whole) == 40
    assert whole[0] is None
    for left, right in zip(whole[1:], chunked[1:], strict=True):
        assert left.chosen.token_id == right.chosen.token_id
        assert left.chosen.logprob == pytest.approx(right.chosen.logprob, abs=1e-4)
        assert len(left.top) == 2


@pytest.mark.parametrize(
    ("prompt_ids", "params", "field"),
    [
        ([], {}, "prompt"),
        ([320], {}, "prompt"),
        ([-1], {}, "prompt"),
        ([2] * 128, {}, "prompt"),
        ([2] * 100, {"max_tokens": 29}, "max_tokens"),
        ([2], {"logit_bias": {320: 1.0}}, "logit_bias"),
        ([2], {"stop_token_ids": (320,)}, "stop_token_ids"),
    ],
)
async def test_bad_input_is_refused_before_it_is_queued(
    engine: Engine, prompt_ids: list[int], params: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        await engine.submit(prompt_ids, SamplingParams(**params))
    assert caught.value.field == field
    assert not engine.health().busy


async def test_the_queue_is_bounded(folder: Path) -> None:
    async with Engine(config(folder, max_num_waiting=2)) as engine:
        streams = [await engine.submit(prompt(number), GREEDY) for number in range(2)]
        with pytest.raises(QueueFull):
            await engine.submit(prompt(3), GREEDY)
        for stream in streams:
            await stream.aclose()


class BrokenModel:
    """A model that fails on demand: by an exception, or with NaN in the last row."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.fault: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    def compute_logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self._model.compute_logits(hidden)
        if self.fault == "raise":
            self.fault = None
            raise RuntimeError("broken")
        if self.fault == "nan" and len(logits) == 2:
            self.fault = None
            logits[-1] = float("nan")
        return logits


@pytest_asyncio.fixture
async def broken(folder: Path) -> AsyncIterator[tuple[Engine, BrokenModel]]:
    models: list[BrokenModel] = []

    def load(settings: EngineConfig) -> LoadedModel:
        loaded = load_model(settings)
        models.append(BrokenModel(loaded.model))
        object.__setattr__(loaded, "model", models[0])
        return loaded

    async with Engine(config(folder), load) as engine:
        yield engine, models[0]


async def test_a_failing_step_ends_its_requests_and_the_engine_goes_on(broken: tuple[Engine, BrokenModel]) -> None:
    engine, model = broken
    expected = await tokens(engine, prompt(9))
    model.fault = "raise"
    with pytest.raises(RequestFailed):
        await tokens(engine, prompt(1))
    assert num_held(engine) == 0
    outputs = [output async for output in engine.generate(prompt(1), GREEDY)]
    assert outputs[-1].usage.cached_tokens == 0, "blocks of the failed step must not be found"
    assert await tokens(engine, prompt(9)) == expected


async def test_a_row_of_nan_fails_only_its_own_request(broken: tuple[Engine, BrokenModel]) -> None:
    engine, model = broken
    expected = await tokens(engine, prompt(1))
    model.fault = "nan"
    first, second = await asyncio.gather(tokens(engine, prompt(1)), tokens(engine, prompt(2)), return_exceptions=True)
    assert first == expected
    assert isinstance(second, RequestFailed)
    assert num_held(engine) == 0


async def test_closing_the_engine_ends_every_stream(folder: Path) -> None:
    async with Engine(config(folder)) as engine:
        stream = await engine.submit(prompt(1), SamplingParams(max_tokens=90, temperature=0, ignore_eos=True))
    with pytest.raises(EngineStopped):
        async for _ in stream:
            pass
    with pytest.raises(EngineStopped):
        await engine.submit(prompt(1), GREEDY)
    assert not engine.health().alive


async def test_a_finished_turn_can_be_located(engine: Engine) -> None:
    assert engine.locate_prefix(prompt(4)).key is None
    ids = [*prompt(4), *await tokens(engine, prompt(4))]
    found = engine.locate_prefix(ids)
    assert found.key is not None
    assert (found.num_device_tokens, found.num_cpu_tokens) == (24, 0), "31 of 32 tokens are computed: 3 full blocks"
    assert engine.locate_prefix(ids, salt=b"other").key is None


async def test_more_blocks_than_memory_stop_the_start(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"num_blocks \(1000000000000\) .*no memory"):
        await Engine(config(folder, num_blocks=10**12)).__aenter__()


async def test_short_texts_do_not_wait_for_long_ones(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    encode, may_end = engine._tokenizer.encode, threading.Event()

    def encode_long_slowly(text: str) -> list[int]:
        if len(text) > LONG_TEXT_CHARS:
            may_end.wait()
        return encode(text)

    monkeypatch.setattr(engine._tokenizer, "encode", encode_long_slowly)
    long = [asyncio.create_task(engine.encode("a" * (LONG_TEXT_CHARS + 1))) for _ in range(8)]
    long_prompt = asyncio.create_task(engine.submit("a" * (LONG_TEXT_CHARS + 1), GREEDY))
    try:
        await asyncio.sleep(0)
        assert await asyncio.wait_for(engine.encode("hi"), timeout=60) == encode("hi")
    finally:
        may_end.set()
    assert len(await asyncio.gather(*long)) == 8
    with pytest.raises(InvalidRequest, match="tokens"):
        await long_prompt


async def test_text_in_and_out(engine: Engine) -> None:
    assert await engine.decode(await engine.encode("Grüße 🌶")) == "Grüße 🌶"
    outputs = [output async for output in engine.generate("hello", GREEDY)]
    ids = [t for output in outputs for t in output.token_ids]
    assert "".join(output.text for output in outputs) == await engine.decode(ids)


@pytest.mark.parametrize(
    "params",
    [
        GREEDY,
        SamplingParams(max_tokens=12, temperature=0.9, seed=4, ignore_eos=True, logprobs=2),
        SamplingParams(max_tokens=12, temperature=0, repetition_penalty=1.3, frequency_penalty=0.5, min_tokens=9),
    ],
    ids=["greedy", "seeded", "penalised"],
)
async def test_an_answer_is_taken_up_from_its_tokens_as_if_nothing_had_been(
    engine: Engine, folder: Path, params: SamplingParams
) -> None:
    async with Engine(config(folder)) as other:
        whole = [output async for output in engine.generate(prompt(1), params) if output.token_ids]
        token_ids = [output.token_ids[0] for output in whole]
        for num_told in (1, 5, len(token_ids) - 1, len(token_ids)):
            stream = await other.submit(prompt(1), params, told_token_ids=token_ids[:num_told])
            rest = [output async for output in stream if output.notice is None]
            assert [token_id for output in rest for token_id in output.token_ids] == token_ids[num_told:]
            assert "".join(output.text for output in rest) == "".join(output.text for output in whole[num_told:])
            assert rest[-1].finish_reason == whole[-1].finish_reason
            assert rest[-1].usage.completion_tokens == len(token_ids)
            assert rest[-1].usage.cached_tokens <= 20
            chosen = [one.chosen for output in rest for one in output.logprobs]
            expected = [one.chosen for output in whole[num_told:] for one in output.logprobs]
            assert [one.token_id for one in chosen] == [one.token_id for one in expected]
            assert [one.logprob for one in chosen] == pytest.approx([one.logprob for one in expected], abs=1e-4)


@pytest.mark.parametrize("params", [{"n": 2}, {"use_beam_search": True}])
async def test_several_sequences_cannot_be_taken_up(engine: Engine, params: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="told_token_ids begin one answer"):
        await engine.submit(prompt(1), SamplingParams(**params), told_token_ids=[5])
    with pytest.raises(InvalidRequest, match="told_token_ids has a token id outside"):
        await engine.submit(prompt(1), SamplingParams(), told_token_ids=[engine.model.vocab_size])
