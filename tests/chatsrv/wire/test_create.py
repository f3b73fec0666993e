"""Which fields are honoured, accepted and refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from chatsrv.errors import InvalidField, NotFound, UnsupportedField
from chatsrv.ids import new_id, new_tag
from chatsrv.wire import strict
from chatsrv.wire.completions import ChatRequest, CompletionRequest
from chatsrv.wire.create import CreateResponse, ResponseCreate
from chatsrv.wire.fields import Ignored, Unsupported

RESPONSE = new_id("resp", new_tag())
CONVERSATION = new_id("conv", new_tag())

ACCEPTED: list[dict[str, Any]] = [
    {"user": "u"},
    {"safety_identifier": "s"},
    {"prompt_cache_key": "k"},
    {"prompt_cache_options": {"mode": "implicit"}},
    {"prompt_cache_retention": "24h"},
    {"parallel_tool_calls": True},
    {"max_tool_calls": 3},
    {"reasoning": {"effort": "low"}},
    {"stream_options": {"include_obfuscation": False}},
    {"tools": []},
    {"tool_choice": "auto"},
    {"tool_choice": "none"},
    {"text": {"format": {"type": "text"}}},
    {"text": {"verbosity": "low"}},
    {"include": ["reasoning.encrypted_content"]},
    {"service_tier": "fast"},
    {"conversation": CONVERSATION, "previous_response_id": RESPONSE},
    {"conversation": {"id": CONVERSATION}, "parent_id": "root"},
]

REFUSED: dict[str, Any] = {
    "tools": [{"type": "function", "name": "f", "parameters": {}}],
    "tool_choice": {"type": "function", "name": "f"},
    "text.format": None,
    "prompt": {"id": "pmpt_1"},
    "context_management": [{"type": "compaction"}],
    "moderation": {"model": "m"},
    "access_programs": {"cyber": "standard"},
    "image": {"context_compression": "auto"},
    "background_options": {"completion_window": "2h"},
}


def check(fields: dict[str, Any], kind: type[CreateResponse] = CreateResponse) -> None:
    strict.convert({"input": "x", **fields}, kind).check()


@pytest.mark.parametrize("fields", ACCEPTED, ids=",".join)
def test_fields_that_change_nothing_are_accepted(fields: dict[str, Any]) -> None:
    check(fields)


@pytest.mark.parametrize("name", REFUSED)
def test_fields_that_cannot_be_honoured_are_refused_by_name(name: str) -> None:
    fields = {"text": {"format": {"type": "json_object"}}} if name == "text.format" else {name: REFUSED[name]}
    with pytest.raises(UnsupportedField) as caught:
        check(fields)
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"service_tier": "first class"}, "service_tier"),
        ({"background": True, "store": False}, "background"),
        ({"conversation": CONVERSATION, "store": False}, "store"),
        ({"parent_id": "root"}, "parent_id"),
        ({"conversation": CONVERSATION, "parent_id": "root", "previous_response_id": RESPONSE}, "parent_id"),
    ],
)
def test_fields_that_do_not_go_together(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidField) as caught:
        check(fields)
    assert caught.value.param == param


@pytest.mark.parametrize("value", ["a:b", "../x", "*", "{x}", "resp_\n", "resp_" + "x" * 10_000, "", "resp_{tag}:*"])
@pytest.mark.parametrize("param", ["previous_response_id", "conversation"])
def test_identifiers_are_checked_before_they_become_keys(param: str, value: str) -> None:
    with pytest.raises(NotFound) as caught:
        check({param: value})
    assert caught.value.param == param
    assert value not in caught.value.message or not value


@pytest.mark.parametrize(("fields", "param"), [({"background": True}, "background"), ({"stream": False}, "stream")])
def test_over_a_socket_some_fields_make_no_sense(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(UnsupportedField) as caught:
        strict.convert({"type": "response.create", "input": "x", **fields}, ResponseCreate).check()
    assert caught.value.param == param


@pytest.mark.parametrize("kind", [CreateResponse, ChatRequest, CompletionRequest], ids=lambda kind: kind.__name__)
def test_the_protocol_page_names_every_field_in_its_place(kind: type[msgspec.Struct]) -> None:
    """The rows of what is accepted without effect and of what is refused are those of the types."""
    page = (Path(__file__).parents[3] / "docs" / "protocol.md").read_text(encoding="utf-8")
    accepted, refused = (
        " ".join(line for line in page.splitlines() if line.startswith(start))
        for start in ("| accepted, without effect", "| refused with 400")
    )
    for field in msgspec.structs.fields(kind):
        told = accepted if field.type == Ignored else refused if field.type == Unsupported else page
        assert re.search(rf"`[^`]*\b{field.name}\b[^`]*`", told), field.name
