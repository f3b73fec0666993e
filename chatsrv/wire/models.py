"""Models, and text as their tokens."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class Model(Struct, kw_only=True, tag_field="object", tag="model"):
    """``max_model_len`` is in tokens, prompt and answer together; ``sampling`` is what suits a conversation."""

    id: str
    max_model_len: int
    sampling: Mapping[str, float]
    architecture: str
    created: int = 0
    owned_by: str = "chatsrv"


class ModelList(Struct, kw_only=True, tag_field="object", tag="list"):
    data: list[Model]


class Tokenize(Struct, kw_only=True, forbid_unknown_fields=True):
    prompt: str
    model: str | None = None


class Tokens(Struct, kw_only=True):
    tokens: list[int]
    count: int
    max_model_len: int


class Detokenize(Struct, kw_only=True, forbid_unknown_fields=True):
    tokens: list[int]
    model: str | None = None


class Detokenized(Struct, kw_only=True):
    prompt: str
