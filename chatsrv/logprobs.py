"""Log-probabilities as the wire has them: tokens as text and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from chatsrv.wire.items import Logprob, TopLogprob
from engine import PositionLogprobs


class LogprobRenderer:
    """Renders the engine's token ids with the model's vocabulary."""

    def __init__(self, vocabulary: Sequence[bytes]) -> None:
        self._vocabulary = vocabulary

    def render(self, positions: Sequence[PositionLogprobs]) -> list[Logprob]:
        return [self._position(position) for position in positions]

    def text(self, token_id: int) -> str:
        """A token's text; bytes that are no characters by themselves show as U+FFFD."""
        return self._vocabulary[token_id].decode(errors="replace")

    def _position(self, position: PositionLogprobs) -> Logprob:
        chosen = position.chosen
        return Logprob(
            token=self.text(chosen.token_id),
            logprob=chosen.logprob,
            bytes=list(self._vocabulary[chosen.token_id]),
            top_logprobs=[
                TopLogprob(
                    token=self.text(top.token_id), logprob=top.logprob, bytes=list(self._vocabulary[top.token_id])
                )
                for top in position.top
            ],
        )
