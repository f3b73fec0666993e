"""What is not JSON as we accept it is refused with the field and the limit."""

from __future__ import annotations

import json
import math
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatsrv.errors import InvalidField, InvalidJson, UnknownField
from chatsrv.wire import strict
from chatsrv.wire.create import CreateResponse

BAD_JSON = {
    "": "not JSON",
    "{": "not JSON",
    "{'a': 1}": "not JSON",
    '{"a": NaN}': "NaN",
    '{"a": Infinity}': "Infinity",
    '{"a": -Infinity}': "-Infinity",
    '{"a": 1e999}': "64-bit float",
    '{"a": -1e999}': "64-bit float",
    '{"a": 123456789012345678901234}': "64 bits",
    '{"a": 1, "a": 2}': "'a' appears twice",
    "[" * 100_000: "64 levels",
    "[" * 65 + "]" * 65: "64 levels",
    '{"a":' * 65 + "1" + "}" * 65: "64 levels",
    "9" * 10_000: "64 bits",
}


@pytest.mark.parametrize("text", BAD_JSON, ids=range(len(BAD_JSON)))
def test_bad_json_is_refused_and_says_why(text: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        strict.parse(text)
    assert BAD_JSON[text] in caught.value.message


def test_many_keys_of_which_one_comes_twice() -> None:
    """Found in one pass: comparing each with each would take hours."""
    keys = "".join(f'"{number}": 0, ' for number in range(300_000))
    with pytest.raises(InvalidJson, match="'x' appears twice"):
        strict.parse(f'{{{keys}"x": 1, "x": 2}}')


@pytest.mark.parametrize("field", ["truncation", "input", "x" * 300_000, "include"])
def test_what_a_client_sends_is_not_told_back_at_length(field: str) -> None:
    value = [{"role": "x" * 300_000, "content": ""}] if field in ("input", "include") else "x" * 300_000
    with pytest.raises(InvalidField) as caught:
        strict.convert({field: value}, CreateResponse)
    assert len(caught.value.message) < 500
    assert len(caught.value.param or "") <= 200
    with pytest.raises(InvalidField) as caught:
        strict.parse(json.dumps({"x" * 300_000: "\ud83d"}))
    assert len(caught.value.message) < 500


@pytest.mark.parametrize("body", [{"x" * 300: 1}, {"input": [{"role": "user", "content": "", "x" * 300: 1}]}])
def test_an_unknown_field_is_called_so_however_long_its_name(body: dict[str, object]) -> None:
    with pytest.raises(UnknownField, match=r"^unknown field: .*x{100}"):
        strict.convert(body, CreateResponse)


def test_bytes_that_are_not_utf8() -> None:
    with pytest.raises(InvalidJson, match="UTF-8"):
        strict.parse(b'"\xff"')


@pytest.mark.parametrize(
    ("text", "param"),
    [
        (r'{"input": "hi \ud83d"}', "input"),
        (r'{"a": [{"b": "\udc00"}]}', "a[0].b"),
        (r'{"a": {"\ud800": 1}}', "a"),
        (r'"\ud800"', None),
    ],
)
def test_lone_surrogates_are_refused_by_field(text: str, param: str | None) -> None:
    with pytest.raises(InvalidField, match="surrogate") as caught:
        strict.parse(text)
    assert caught.value.param == param


def test_escaped_pairs_are_characters() -> None:
    assert strict.parse(r'"\ud83d\udc4b"') == "👋"


@pytest.mark.parametrize(
    ("text", "param", "says"),
    [
        ('{"max_output_tokens": 0}', "max_output_tokens", ">= 1"),
        ('{"max_output_tokens": -1}', "max_output_tokens", ">= 1"),
        ('{"max_output_tokens": 1.5}', "max_output_tokens", "float"),
        ('{"max_output_tokens": "10"}', "max_output_tokens", "str"),
        ('{"max_output_tokens": true}', "max_output_tokens", "bool"),
        ('{"max_output_tokens": 9223372036854775808}', "max_output_tokens", "<= 2147483647"),
        ('{"temperature": "warm"}', "temperature", "float"),
        ('{"top_logprobs": 21}', "top_logprobs", "<= 20"),
        ('{"input": 5}', "input", "int"),
        ('{"input": [{"role": "root", "content": "x"}]}', "input[0].role", "root"),
        ('{"input": [{"content": "x"}]}', "input[0].role", "missing"),
        ('{"metadata": {"k": 1}}', "metadata[...]", "str"),
        (json.dumps({"metadata": {"k" * 65: "v"}}), "metadata", "<= 64"),
        (json.dumps({"metadata": {"k": "v" * 513}}), "metadata[...]", "<= 512"),
        (json.dumps({"metadata": {str(i): "v" for i in range(17)}}), "metadata", "<= 16"),
        ("[]", None, "object"),
        ('"text"', None, "object"),
        ("null", None, "object"),
    ],
)
def test_wrong_fields_are_named_with_their_limit(text: str, param: str | None, says: str) -> None:
    with pytest.raises(InvalidField) as caught:
        strict.decode(text, CreateResponse)
    assert caught.value.param == param
    assert says in caught.value.message


def test_unknown_fields_are_named() -> None:
    with pytest.raises(UnknownField) as caught:
        strict.decode('{"input": "x", "tempreature": 1}', CreateResponse)
    assert caught.value.param == "tempreature"
    with pytest.raises(UnknownField) as caught:
        strict.decode('{"input": [{"role": "user", "content": "x", "mood": 1}]}', CreateResponse)
    assert caught.value.param == "input[0].mood"


_json = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    # No surrogates: Python's characters of category Cs.
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4),
    max_leaves=20,
)


@given(_json)
def test_all_proper_json_is_read_as_it_is(value: Any) -> None:
    assert strict.parse(json.dumps(value)) == value
    assert strict.parse(json.dumps(value, ensure_ascii=False)) == value


@given(st.text() | st.binary())
def test_whatever_comes_is_read_or_refused(data: str | bytes) -> None:
    """The only way to fail is the one that has an answer for the client."""
    with suppress(InvalidJson, InvalidField):
        strict.decode(data, CreateResponse)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_keep_their_value(number: float) -> None:
    assert math.isclose(float(str(strict.parse(repr(number)))), number)
