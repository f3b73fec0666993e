"""Steering: input for a response that is still being written; it stops there, and a successor goes on with it."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from chatsrv.wire.create import Input, ResponseCreate
from chatsrv.wire.events import SteerError, SteerFailed, UncommittedSteer
from chatsrv.wire.items import InputMessage

MAX_PENDING = 8

SteerErrorCode = Literal[
    "invalid_input",
    "response_not_found",
    "response_already_completed",
    "response_not_active",
    "too_many_pending_steers",
    "successor_creation_failed",
]


@dataclass(frozen=True, slots=True)
class Steering:
    """One accepted submission.

    Attributes:
        response_id: of the response that it steers.
    """

    response_id: str
    input: Input
    id: str = field(default_factory=lambda: f"steer_{secrets.token_urlsafe(18)}")

    @property
    def messages(self) -> list[InputMessage]:
        return [InputMessage(role="user", content=self.input)] if isinstance(self.input, str) else self.input


def successor(request: ResponseCreate, response_id: str, steerings: list[Steering]) -> ResponseCreate:
    """The request that goes on after the steered response, with its settings and all that was submitted, in order."""
    messages = [message for steering in steerings for message in steering.messages]
    return msgspec.structs.replace(request, input=messages, previous_response_id=response_id, parent_id=None)


def problem(steering_input: Input) -> str | None:
    """Why this input cannot steer; None if it can."""
    if isinstance(steering_input, str):
        return None if steering_input else "input: must not be empty"
    if not steering_input:
        return "input: must not be an empty list"
    if any(message.role != "user" for message in steering_input):
        return "input: only messages of the role user can steer"
    return None


def failed(
    code: SteerErrorCode, message: str, response_id: str, steering_input: Input, steering_id: str | None = None
) -> SteerFailed:
    """The event that gives uncommitted input back."""
    steer = UncommittedSteer(previous_response_id=response_id, input=_echo(steering_input))
    if steering_id is not None:
        steer.id = steering_id
    return SteerFailed(sequence_number=0, error=SteerError(code=code, message=message), steer=steer)


def _echo(steering_input: Input) -> str | list[dict[str, object]]:
    """As the client sent it, in the one form that its types know."""
    if isinstance(steering_input, str):
        return steering_input
    return [
        {"type": "message", "role": message.role, "content": [{"type": "input_text", "text": message.text}]}
        for message in steering_input
    ]
