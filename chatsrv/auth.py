"""Who is asking. Until there are keys everybody is the one local owner; every call names its caller already."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who may ask.

    Attributes:
        owner: whose conversations they are; safe as part of a key.
    """

    owner: str

    @property
    def salt(self) -> bytes:
        """Keeps the owner's part of the prefix cache apart, so that nobody can time what another has asked."""
        return hashlib.sha256(b"chatsrv prefix cache owner\0" + self.owner.encode()).digest()


LOCAL = Caller("local")
