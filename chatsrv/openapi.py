"""The OpenAPI document: written from the table of operations and the types of the wire, never by hand beside them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import Struct, structs

from chatsrv import live
from chatsrv.auth import COOKIE
from chatsrv.errors import ErrorAnswer
from chatsrv.ids import Kind, pattern
from chatsrv.operation import Operation
from chatsrv.wire.create import ClientEvent
from chatsrv.wire.events import ServerEvent

VERSION = "3.2.0"

_INFO = {
    "title": "chatsrv",
    "version": "1",
    "description": "The HTTP side of the wire protocol. `x-websockets` tells what is spoken over sockets.",
}
_SOCKETS = {
    "/v1/responses": (ClientEvent, ServerEvent),
    "/v1/engine/live": (live.ReaderEvent, live.FeedEvent),
}
_SECURITY_SCHEMES = {
    "key": {"type": "http", "scheme": "bearer"},
    "cookie": {"type": "apiKey", "in": "cookie", "name": COOKIE},
}
_IDS: dict[str, Kind] = {"response_id": "resp", "conversation_id": "conv", "item_id": "msg"}
_PATH_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


def document(operations: Iterable[Operation], *, with_keys: bool) -> dict[str, Any]:
    """The document of a server.

    Args:
        with_keys: whether the server asks for API keys.
    """
    operations = list(operations)
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = paths.setdefault(_PATH_PARAMETER.sub(r"{\1}", operation.path), {})
        path[operation.method.lower()] = _operation(operation, schemas, with_keys)
    sockets = {
        path: {"client": schemas.of(client), "server": schemas.of(server)}
        for path, (client, server) in _SOCKETS.items()
    }
    components = {"schemas": schemas.components, "responses": _errors(operations, schemas)}
    if with_keys:
        components["securitySchemes"] = _SECURITY_SCHEMES
    return {"openapi": VERSION, "info": _INFO, "paths": paths, "components": components, "x-websockets": sockets}


class _Schemas:
    """JSON schemas of all types that the operations and the sockets name; those with a name are components."""

    def __init__(self, operations: list[Operation]) -> None:
        declared = [
            kind
            for operation in operations
            for kind in (operation.answers, operation.unwell, operation.body, operation.query, *operation.events)
            if kind is not None and not isinstance(kind, str)
        ]
        kinds = [ErrorAnswer, *declared, *(kind for pair in _SOCKETS.values() for kind in pair)]
        schemas, self.components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
        self._schemas: dict[Any, dict[str, Any]] = dict(zip(kinds, schemas, strict=True))

    def of(self, kind: Any) -> dict[str, Any]:
        return self._schemas[kind]

    def properties(self, kind: type[Struct]) -> dict[str, Any]:
        """The schemas of a type's fields."""
        name = self.of(kind)["$ref"].rsplit("/", 1)[1]
        properties: dict[str, Any] = self.components[name]["properties"]
        return properties


def _operation(operation: Operation, schemas: _Schemas, with_keys: bool) -> dict[str, Any]:
    told: dict[str, Any] = {
        "operationId": f"{operation.endpoint.__module__.rsplit('.', 1)[1]}.{operation.endpoint.__name__}",
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation, schemas)],
        "responses": _answers(operation, schemas, with_keys),
    }
    if operation.body is not None:
        content = {"application/json": {"schema": schemas.of(operation.body)}}
        told["requestBody"] = {"required": not operation.body_is_optional, "content": content}
    if with_keys and operation.role is not None:
        told["security"] = [{name: []} for name in _SECURITY_SCHEMES]
    return told


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": _path_schema(name)}
        for name in _PATH_PARAMETER.findall(operation.path)
    ]


def _path_schema(name: str) -> dict[str, Any]:
    return {"type": "string", "pattern": pattern(_IDS[name])} if name in _IDS else {"type": "string"}


def _query_parameters(operation: Operation, schemas: _Schemas) -> list[dict[str, Any]]:
    if operation.query is None:
        return []
    properties = schemas.properties(operation.query)
    return [
        {"name": field.encode_name, "in": "query", "schema": properties[field.encode_name], "required": field.required}
        for field in structs.fields(operation.query)
    ]


def _answers(operation: Operation, schemas: _Schemas, with_keys: bool) -> dict[str, Any]:
    success = {"application/json": {"schema": schemas.of(operation.answers)}}
    if operation.events:
        data = [_event_data(kind, schemas) for kind in operation.events]
        event = {"type": "object", "required": ["data"], "properties": {"data": {"type": "string", "anyOf": data}}}
        success["text/event-stream"] = {"itemSchema": event}
    answers: dict[str, Any] = {"200": {"description": "Success", "content": success}}
    if operation.unwell is not None:
        content = {"application/json": {"schema": schemas.of(operation.unwell)}}
        answers["503"] = {"description": "Not well", "content": content}
    for error in operation.errors:
        if error.status != 401 or with_keys:
            answers[str(error.status)] = {"$ref": f"#/components/responses/{error.status}"}
    return answers


def _event_data(kind: Any, schemas: _Schemas) -> dict[str, Any]:
    if isinstance(kind, str):
        return {"const": kind}
    return {"contentMediaType": "application/json", "contentSchema": schemas.of(kind)}


def _errors(operations: list[Operation], schemas: _Schemas) -> dict[str, Any]:
    content = {"application/json": {"schema": schemas.of(ErrorAnswer)}}
    kinds = {error.status: error for operation in operations for error in operation.errors}
    return {
        str(status): {"description": f"`{kind.type}`", "content": content} for status, kind in sorted(kinds.items())
    }
