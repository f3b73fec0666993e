"""``/v1/models``, ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv.errors import InvalidField
from chatsrv.http import json_response, read_body
from chatsrv.seam import EngineSeam
from chatsrv.services import services
from chatsrv.turns import check_model


class Tokenize(Struct, kw_only=True, forbid_unknown_fields=True):
    prompt: str
    model: str | None = None


class Detokenize(Struct, kw_only=True, forbid_unknown_fields=True):
    tokens: list[int]
    model: str | None = None


async def list_all(request: Request) -> ASGIApp:
    return json_response({"object": "list", "data": [_model(services(request).engine)]})


async def retrieve(request: Request) -> ASGIApp:
    engine = services(request).engine
    check_model(request.path_params["model"], engine.model.name)
    return json_response(_model(engine))


async def tokenize(request: Request) -> ASGIApp:
    body = await read_body(request, Tokenize)
    engine = services(request).engine
    check_model(body.model, engine.model.name)
    tokens = await engine.encode(body.prompt)
    return json_response({"tokens": tokens, "count": len(tokens), "max_model_len": engine.model.max_model_len})


async def detokenize(request: Request) -> ASGIApp:
    body = await read_body(request, Detokenize)
    engine = services(request).engine
    check_model(body.model, engine.model.name)
    for token_id in body.tokens:
        if not 0 <= token_id < engine.model.vocab_size:
            limit = engine.model.vocab_size - 1
            raise InvalidField("tokens", f"tokens: ids go from 0 to {limit}, and {token_id} is not one")
    return json_response({"prompt": await engine.decode(body.tokens)})


def _model(engine: EngineSeam) -> dict[str, Any]:
    model = engine.model
    return {
        "id": model.name,
        "object": "model",
        "created": 0,
        "owned_by": "chatsrv",
        "max_model_len": model.max_model_len,
        "architecture": model.architecture,
    }
