"""What one API key may use at once and per minute."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

Count = Annotated[int, Meta(ge=1)]


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """None: no limit, or, in the file of keys, the same as for every key.

    Attributes:
        max_connections: WebSockets and HTTP requests that are open at once, streams included.
        max_running: responses that are computed, or wait for the engine, at once.
        max_queued: creates that wait on the key's sockets for others to end.
        tokens_per_minute: of prompts and answers together, as a mean; a minute's worth may come at once.
        max_message_bytes: of one WebSocket message or HTTP body, where that is less than the server allows everybody.
    """

    max_connections: Count | None = None
    max_running: Count | None = None
    max_queued: Count | None = None
    tokens_per_minute: Count | None = None
    max_message_bytes: Count | None = None

    def over(self, other: Limits) -> Limits:
        """These, and the other's where these say nothing."""
        values = {name: getattr(self, name) for name in Limits.__struct_fields__}
        return msgspec.structs.replace(other, **{name: value for name, value in values.items() if value is not None})


NO_LIMITS = Limits()
DEFAULT_LIMITS = Limits(max_connections=128, max_running=64, max_queued=256)
"""Of a key, where the file of keys says nothing."""
