"""One request to the engine as those see it who run the server: its count, its span and, if asked for, its texts."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from chatsrv.counters import RESPONSES
from chatsrv.logs import TEXTS
from chatsrv.traces import Attributes, Span
from engine import Output, Priority, Usage


class Observation:
    """From before the submission to ``end``.

    Args:
        response_id: of the response, or completion, that the engine is asked for.
        asked: what is new in the prompt: texts, or token ids.
    """

    def __init__(self, response_id: str, model: str, priority: Priority, asked: Sequence[str | int]) -> None:
        self._response_id = response_id
        self._model = model
        self._priority = priority
        self._asked = asked
        self._answered: dict[int, str] = {}
        self._span = Span()
        self._began = time.monotonic()
        self._first_token_s: float | None = None
        self._usage: Usage | None = None
        self._outcome = "aborted"

    def note(self, output: Output) -> None:
        self._usage = output.usage
        self._outcome = output.finish_reason or self._outcome
        if self._first_token_s is None and output.token_ids:
            self._first_token_s = time.monotonic() - self._began
        if TEXTS.isEnabledFor(logging.INFO):
            self._answered[output.index] = self._answered.get(output.index, "") + output.text

    def fail(self) -> None:
        self._outcome = "failed"

    def end(self) -> None:
        """Call it once."""
        RESPONSES.labels(self._outcome).inc()
        attributes: Attributes = {
            "gen_ai.response.id": self._response_id,
            "gen_ai.response.model": self._model,
            "gen_ai.usage.input_tokens": None if self._usage is None else self._usage.prompt_tokens,
            "gen_ai.usage.output_tokens": None if self._usage is None else self._usage.completion_tokens,
            "chatsrv.priority": self._priority,
            "chatsrv.outcome": self._outcome,
            "chatsrv.time_to_first_token_s": self._first_token_s,
        }
        self._span.end("response", attributes, failed=self._outcome == "failed")
        answered = [text for _, text in sorted(self._answered.items())]
        fields = {"response_id": self._response_id}
        TEXTS.info(
            "%s was asked %r and answered %r", self._response_id, self._asked, answered, extra={"fields": fields}
        )
