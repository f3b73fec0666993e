"""Chat and legacy completions, judged by the official client."""

from __future__ import annotations

import json
from typing import Any

import httpx
import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from engine import RequestFailed
from tests.chatsrv.conftest import RunningServer, wait_until

HI: Any = [{"role": "user", "content": "Hi"}]


def chat(server: RunningServer, **fields: Any) -> httpx.Response:
    body = {"messages": HI} | fields
    return httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=20)


def test_a_whole_chat_completion(server: RunningServer) -> None:
    server.engine.enqueue("Hello!")
    messages: Any = [{"role": "developer", "content": "Be nice."}, *HI]
    completion = server.client().chat.completions.create(model="fake", messages=messages, temperature=0)
    ChatCompletion.model_validate(completion.to_dict(), strict=True)
    assert completion.choices[0].message.content == "Hello!"
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.prompt_tokens == len(server.engine.submissions[0].prompt)
    assert server.engine.submissions[0].text == "system\nBe nice.user\nHiassistant\n"


def test_a_streamed_chat_completion(server: RunningServer) -> None:
    server.engine.enqueue("Hello 🦊")
    stream = server.client().chat.completions.create(
        model="fake", messages=HI, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.to_dict(), strict=True)
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert deltas[0].role == "assistant"
    assert "".join(delta.content or "" for delta in deltas) == "Hello 🦊"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None
    assert len({chunk.id for chunk in chunks}) == 1


def test_usage_only_for_who_asks(server: RunningServer) -> None:
    text = chat(server, stream=True).text
    assert '"usage"' not in text
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_n_choices(server: RunningServer, stream: bool) -> None:
    for answer in ("one", "two", "three"):
        server.engine.enqueue(answer)
    answer = chat(server, n=3, stream=stream)
    texts = ["", "", ""]
    if stream:
        for line in answer.text.splitlines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    texts[choice["index"]] += choice["delta"].get("content", "")
    else:
        for choice in answer.json()["choices"]:
            texts[choice["index"]] = choice["message"]["content"]
    assert texts == ["one", "two", "three"]


def test_logprobs(server: RunningServer) -> None:
    server.engine.enqueue("ab")
    completion = server.client().chat.completions.create(
        model="fake", messages=HI, logprobs=True, top_logprobs=2, max_tokens=2
    )
    assert completion.choices[0].logprobs is not None
    content = completion.choices[0].logprobs.content
    assert content is not None
    assert [(entry.token, entry.bytes, entry.logprob) for entry in content] == [("a", [97], -0.5), ("b", [98], -0.5)]
    assert [top.token for top in content[0].top_logprobs] == ["a", "b"]


def test_every_sampling_field_reaches_the_engine(server: RunningServer) -> None:
    chat(
        server,
        **{"temperature": 0.5, "top_p": 0.9, "top_k": 5, "min_p": 0.1, "seed": 7, "stop": ["x", "y"], "min_tokens": 1},
        **{"stop_token_ids": [3], "ignore_eos": False, "repetition_penalty": 1.1, "presence_penalty": 0.2},
        **{"frequency_penalty": 0.3, "logit_bias": {"5": -2.5}, "max_completion_tokens": 9, "n": 2},
        **{"length_penalty": 0.7, "early_stopping": True, "best_of": 3, "priority": -1},
    )
    submission = server.engine.submissions[0]
    params = submission.params
    assert (params.temperature, params.top_p, params.top_k, params.min_p, params.seed) == (0.5, 0.9, 5, 0.1, 7)
    assert (params.stop, params.stop_token_ids, params.min_tokens, params.max_tokens) == (("x", "y"), (3,), 1, 9)
    assert (params.repetition_penalty, params.presence_penalty, params.frequency_penalty) == (1.1, 0.2, 0.3)
    assert (params.logit_bias, params.n, params.best_of, params.length_penalty) == ({5: -2.5}, 2, 3, 0.7)
    assert (params.early_stopping, submission.priority) == (True, "priority")


def test_beam_search_by_its_field(server: RunningServer) -> None:
    chat(server, use_beam_search=True, n=2)
    assert server.engine.submissions[0].params.use_beam_search


@pytest.mark.parametrize(
    ("fields", "param", "says"),
    [
        ({"messages": []}, "messages", ">= 1"),
        ({"messages": [{"role": "root", "content": "x"}]}, "messages[0].role", "root"),
        ({"max_tokens": 0}, "max_tokens", ">= 1"),
        ({"max_tokens": 2**63}, "max_tokens", "2147483647"),
        ({"max_completion_tokens": 5000}, "max_completion_tokens", "4096"),
        ({"max_completion_tokens": 4096}, "max_completion_tokens", "max_completion_tokens and prompt"),
        ({"max_tokens": 4096}, "max_tokens", "max_tokens and prompt"),
        ({"max_completion_tokens": 4, "min_tokens": 5}, "min_tokens", "exceed max_completion_tokens, 4"),
        ({"n": 0}, "n", "1 to 64"),
        ({"n": 65}, "n", "1 to 64"),
        ({"top_logprobs": 3}, "top_logprobs", "logprobs"),
        ({"temperature": -0.1}, "temperature", "0"),
        ({"tools": [{"type": "function"}]}, "tools", "not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "text"),
        ({"audio": {"voice": "x"}}, "audio", "not supported"),
        ({"store": True}, "store", "stored"),
        ({"functions": []}, "functions", "not supported"),
        ({"unheard_of": 1}, "unheard_of", "unknown"),
        ({"messages": [{"role": "user", "content": "x" * 5000}]}, "messages", "4096"),
    ],
)
def test_bad_requests_name_the_field_and_the_limit(
    server: RunningServer, fields: dict[str, Any], param: str, says: str
) -> None:
    answer = chat(server, **fields)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
    assert says in answer.json()["error"]["message"]
    assert not server.engine.submissions


def test_a_history_with_tools_is_taken(server: RunningServer) -> None:
    calls = [{"id": str(i), "type": "function", "function": {"name": "f", "arguments": arguments}}
             for i, arguments in enumerate(('{"a": 1}', "null", "", "{}"))]  # fmt: skip
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "What "}, {"type": "text", "text": "is it?"}]},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "0", "content": "42"},
    ]
    assert chat(server, messages=messages).status_code == 200
    text = server.engine.submissions[0].text
    assert text.startswith("user\nWhat is it?assistant\n<tool_call>")
    assert '{"name": "f", "arguments": {"a": 1}}' in text
    assert text.count('"arguments": {}') == 3
    assert "tool\n42" in text


@pytest.mark.parametrize(
    ("asked", "used"), [(None, "default"), ("auto", "default"), ("fast", "priority"), ("flex", "flex")]
)
def test_the_class_that_was_used_is_told(server: RunningServer, asked: Any, used: str) -> None:
    completions = server.client().chat.completions
    assert completions.create(model="fake", messages=HI, service_tier=asked).service_tier == used
    chunks = list(completions.create(model="fake", messages=HI, service_tier=asked, stream=True))
    assert {chunk.service_tier for chunk in chunks} == {used}


@pytest.mark.parametrize("arguments", ["{bad", "[]", "5"])
def test_bad_arguments_are_named(server: RunningServer, arguments: str) -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": arguments}}
    answer = chat(server, messages=[{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert answer.json()["error"]["param"] == "messages[0].tool_calls[0].function.arguments"


def test_what_the_template_refuses_is_a_400(server: RunningServer) -> None:
    server.engine.refuses_roles = frozenset({"tool"})
    answer = chat(server, messages=[{"role": "tool", "content": "x"}])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "messages")


def test_a_failure_on_the_way_is_told_in_the_stream(server: RunningServer) -> None:
    server.engine.enqueue(RequestFailed("inside"))
    with pytest.raises(openai.APIError, match="the model failed"):
        list(server.client().chat.completions.create(model="fake", messages=HI, stream=True))
    server.engine.enqueue(RequestFailed("inside"))
    answer = chat(server)
    assert answer.status_code == 500
    assert "inside" not in answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_leaving_stops_the_generation(server: RunningServer, stream: bool) -> None:
    server.engine.paused = True
    body = {"messages": HI, "stream": stream, "n": 2}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=0.4)
    wait_until(lambda: server.engine.running == 0)
    assert server.engine.submissions[0].aborted


def test_a_full_queue_is_a_429_with_a_time(server: RunningServer) -> None:
    server.engine.max_num_waiting = 0
    answer = chat(server)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


def test_legacy_completions(server: RunningServer) -> None:
    server.engine.enqueue(" Paris.")
    completion = server.client().completions.create(model="fake", prompt="The capital of France is", logprobs=1)
    Completion.model_validate(completion.to_dict(), strict=True)
    assert completion.choices[0].text == " Paris."
    logprobs = completion.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.text_offset is not None
    assert "".join(logprobs.tokens) == " Paris."
    assert logprobs.text_offset[:3] == [0, 1, 2]
    assert server.engine.submissions[0].text == "The capital of France is"


def test_offsets_of_tokens_count_on_through_a_stream(server: RunningServer) -> None:
    for text in (" Paris.", " Paris."):
        server.engine.enqueue(text)
    create = server.client().completions.create
    whole = create(model="fake", prompt="x", logprobs=0).choices[0].logprobs
    streamed = [chunk.choices[0].logprobs for chunk in create(model="fake", prompt="x", logprobs=0, stream=True)]
    assert whole is not None
    assert whole.text_offset == [offset for part in streamed if part is not None for offset in part.text_offset or ()]


def test_several_prompts_in_one_request(server: RunningServer) -> None:
    client = server.client()
    texts = client.completions.create(model="fake", prompt=["one", "two"], n=2, max_tokens=40)
    assert [choice.index for choice in texts.choices] == [0, 1, 2, 3]
    assert [choice.text for choice in texts.choices][2:] == ["You said: two"] * 2
    tokens = client.completions.create(model="fake", prompt=[[104, 105], [111]], stream=True, max_tokens=40)
    streamed = ["", ""]
    for chunk in tokens:
        streamed[chunk.choices[0].index] += chunk.choices[0].text
    assert streamed == ["You said: hi", "You said: o"]


@pytest.mark.parametrize(
    ("prompt", "param"), [([], "prompt"), ([1.5], "prompt[0]"), (["a", 1], "prompt[1]"), ([[]], "prompt[0]")]
)
def test_bad_prompts_are_named(server: RunningServer, prompt: Any, param: str) -> None:
    answer = httpx.post(f"{server.url}/v1/completions", json={"prompt": prompt})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


def test_models_and_tokens(server: RunningServer) -> None:
    (model,) = server.client().models.list()
    assert (model.id, model.to_dict()["max_model_len"]) == ("fake", 4096)
    assert model.to_dict()["sampling"] == {"temperature": 0.3, "top_p": 0.9, "repetition_penalty": 1.1}
    assert server.client().models.retrieve("fake").id == "fake"
    with pytest.raises(openai.NotFoundError):
        server.client().models.retrieve("gpt-6")
    tokens = httpx.post(f"{server.url}/tokenize", json={"prompt": "hé"}).json()
    assert tokens == {"tokens": [104, 195, 169], "count": 3, "max_model_len": 4096}
    text = httpx.post(f"{server.url}/detokenize", json={"tokens": tokens["tokens"]}).json()
    assert text == {"prompt": "hé"}
    for bad in ([-1], [258]):
        answer = httpx.post(f"{server.url}/detokenize", json={"tokens": bad})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "tokens")
