"""The table from exceptions to answers: each in its place, and nothing of the inside gets out."""

from __future__ import annotations

import logging

import pytest
from starlette.exceptions import HTTPException

from chatsrv.errors import ApiError, ErrorBody, InvalidField
from chatsrv.failures import answer_to
from engine import EngineStopped, InvalidRequest, QueueFull, RequestFailed


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (InvalidRequest("prompt", "prompt is too long", "context_length_exceeded"), 400, "context_length_exceeded"),
        (QueueFull("full"), 429, "queue_full"),
        (RequestFailed("NaN in row 3"), 500, "server_error"),
        (EngineStopped("stopped"), 503, "engine_stopped"),
        (HTTPException(404, "Not Found"), 404, "not_found"),
        (HTTPException(405, "Method Not Allowed"), 405, "method_not_allowed"),
        (HTTPException(418, "teapot"), 500, "server_error"),
        (InvalidField("input", "input: is missing"), 400, "invalid_value"),
    ],
)
def test_each_kind_has_its_status_and_code(error: Exception, status: int, code: str) -> None:
    answer = answer_to(error)
    assert (answer.status, answer.code) == (status, code)


def test_the_field_at_fault_is_named() -> None:
    assert answer_to(InvalidRequest("top_p", "top_p must be above 0")).body() == ErrorBody(
        message="top_p must be above 0", type="invalid_request_error", param="top_p", code="invalid_value"
    )


@pytest.mark.parametrize(("wait_s", "header"), [(0.1, "1"), (1.0, "1"), (1.2, "2")])
def test_a_full_queue_says_in_whole_seconds_when_to_come_back(wait_s: float, header: str) -> None:
    assert answer_to(QueueFull("full", retry_after_s=wait_s)).headers == {"Retry-After": header}


def test_a_subclass_has_the_place_of_its_parent() -> None:
    class Special(EngineStopped):
        pass

    assert answer_to(Special("x")).code == "engine_stopped"


def test_the_unexpected_is_logged_but_not_told(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "chatsrv"):
        answer = answer_to(KeyError("a secret"))
    assert "secret" not in str(answer.body())
    assert answer.code == "server_error"
    assert "a secret" in caplog.text


def test_errors_of_a_running_request_do_not_tell_the_inside() -> None:
    assert "row 3" not in answer_to(RequestFailed("NaN in row 3")).message
    assert isinstance(answer_to(RequestFailed("x")), ApiError)


def test_why_the_model_failed_stands_in_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR, "chatsrv"):
        answer = answer_to(RequestFailed("NaN in row 3"))
    assert "NaN in row 3" in caplog.text
    assert "NaN" not in answer.message
