"""What can ever run: refused here, before it is queued, is what could not run to its end even alone."""

from __future__ import annotations

from engine.api import SamplingParams
from engine.config import EngineConfig
from engine.errors import InvalidRequest


class AdmissionLimits:
    """The sizes that bound a single request.

    Args:
        num_blocks: blocks on the device.
        max_model_len: tokens of prompt and answer together.
    """

    def __init__(self, config: EngineConfig, num_blocks: int, max_model_len: int) -> None:
        self._num_blocks = num_blocks
        self._block_size = config.block_size
        self._max_num_seqs = config.max_num_seqs
        self._max_model_len = max_model_len

    def max_tokens(self, num_prompt_tokens: int, params: SamplingParams) -> int:
        """Tokens that the request may generate.

        Raises:
            InvalidRequest: the request could never run to its end, even alone.
        """
        if num_prompt_tokens == 0:
            raise InvalidRequest("prompt", "prompt must hold at least one token", "empty_prompt")
        room = self._max_model_len - num_prompt_tokens
        if room < 1:
            raise InvalidRequest(
                "prompt",
                f"prompt has {num_prompt_tokens} tokens; with at least one token of answer the limit is "
                f"{self._max_model_len - 1}",
                "context_length_exceeded",
            )
        if params.max_tokens is not None and params.max_tokens > room:
            raise InvalidRequest(
                "max_tokens",
                f"max_tokens is {params.max_tokens}, but the prompt of {num_prompt_tokens} tokens leaves room for "
                f"{room} of {self._max_model_len}",
                "context_length_exceeded",
            )
        if params.num_sequences > self._max_num_seqs:
            raise InvalidRequest(
                "n", f"n (or best_of) is {params.num_sequences}, but at most {self._max_num_seqs} run at once"
            )
        return self._max_tokens_in_blocks(num_prompt_tokens, params, room)

    def _max_tokens_in_blocks(self, num_prompt_tokens: int, params: SamplingParams, room: int) -> int:
        """Sequences share the full blocks of the prompt; the last drawn token needs no slot."""
        block_size = self._block_size
        num_sequences = params.num_sequences
        num_shared = num_prompt_tokens // block_size if num_sequences > 1 else 0
        num_own = (self._num_blocks - num_shared) // num_sequences
        fitting = (num_shared + num_own) * block_size - num_prompt_tokens + 1
        wanted = params.max_tokens if params.max_tokens is not None else min(room, max(fitting, 1))
        if wanted > fitting:
            raise InvalidRequest(
                "max_tokens" if fitting >= 1 else "prompt",
                f"a prompt of {num_prompt_tokens} tokens and {num_sequences} answer(s) of {wanted} tokens need more "
                f"than the cache's {self._num_blocks} blocks of {block_size} tokens",
                "context_length_exceeded",
            )
        return wanted
