"""``/v1/models``, ``/tokenize`` and ``/detokenize``."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import ASGIApp

from chatsrv.errors import InvalidField
from chatsrv.http import json_response, read_body
from chatsrv.seam import EngineSeam
from chatsrv.services import services
from chatsrv.turns import check_model
from chatsrv.wire.models import Detokenize, Detokenized, Model, ModelList, Tokenize, Tokens

CALM_SAMPLING = {"temperature": 0.3, "top_p": 0.9, "repetition_penalty": 1.1}
"""For models whose makers recommend nothing. At a temperature of 1 a small one talks nonsense, and without the penalty
it falls into loops at a low one."""


async def list_all(request: Request) -> ASGIApp:
    return json_response(ModelList(data=[_model(services(request).engine)]))


async def retrieve(request: Request) -> ASGIApp:
    engine = services(request).engine
    check_model(request.path_params["model"], engine.model.name)
    return json_response(_model(engine))


async def tokenize(request: Request) -> ASGIApp:
    body = await read_body(request, Tokenize)
    engine = services(request).engine
    check_model(body.model, engine.model.name)
    tokens = await engine.encode(body.prompt)
    return json_response(Tokens(tokens=tokens, count=len(tokens), max_model_len=engine.model.max_model_len))


async def detokenize(request: Request) -> ASGIApp:
    body = await read_body(request, Detokenize)
    engine = services(request).engine
    check_model(body.model, engine.model.name)
    for token_id in body.tokens:
        if not 0 <= token_id < engine.model.vocab_size:
            limit = engine.model.vocab_size - 1
            raise InvalidField("tokens", f"tokens: ids go from 0 to {limit}, and {token_id} is not one")
    return json_response(Detokenized(prompt=await engine.decode(body.tokens)))


def _model(engine: EngineSeam) -> Model:
    model = engine.model
    return Model(
        id=model.name,
        max_model_len=model.max_model_len,
        sampling=model.sampling or CALM_SAMPLING,
        architecture=model.architecture,
    )
