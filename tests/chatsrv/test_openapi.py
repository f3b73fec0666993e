"""The OpenAPI document against the server that serves it: what it says is accepted, refused and answered."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
import requests
import schemathesis
from hypothesis import Phase, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance
from starlette.routing import Route

from chatsrv.app import ROUTES
from chatsrv.openapi import document
from chatsrv.operations import OPERATIONS
from tests.chatsrv.conftest import RunningServer, ServerThread, make_settings
from tests.fakes import FakeEngine

schema = schemathesis.openapi.from_dict(document(OPERATIONS, with_keys=False))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    settings = make_settings(tmp_path_factory.mktemp("data"))
    with ServerThread(settings, FakeEngine(max_model_len=256)) as running:
        yield running


@pytest.fixture(scope="module")
def session() -> Iterator[requests.Session]:
    with requests.Session() as session:
        session.trust_env = False  # looking for proxies takes longer than most requests
        yield session


@schema.parametrize()
@settings(max_examples=4, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_the_server_is_as_its_document_says(case: Case, running: RunningServer, session: requests.Session) -> None:
    """Schemathesis tries the limits of every field, and a few random requests.

    Valid data may still be refused: a type does not tell that a field needs another one.
    """
    response = case.call(base_url=running.url, session=session)
    case.validate_response(response, excluded_checks=[positive_data_acceptance])


def test_it_is_openapi() -> None:
    schema.validate()


@pytest.mark.parametrize("with_keys", [False, True])
def test_security_is_told_where_there_are_keys(with_keys: bool) -> None:
    told = document(OPERATIONS, with_keys=with_keys)
    create, health = told["paths"]["/v1/responses"]["post"], told["paths"]["/healthz"]["get"]
    assert ("security" in create, "401" in create["responses"]) == (with_keys, with_keys)
    assert ("securitySchemes" in told["components"]) is with_keys
    assert "security" not in health


def test_every_route_is_told(running: RunningServer) -> None:
    paths = requests.get(f"{running.url}/openapi.json", timeout=20).json()["paths"]
    routed = {re.sub(r":\w+}", "}", route.path) for route in ROUTES if isinstance(route, Route)}
    assert set(paths) == routed - {"/metrics"}  # for Prometheus, in a form of its own


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/responses", {"POST"}),
        ("PUT", "/v1/conversations/x", {"GET", "HEAD", "POST", "DELETE"}),
        ("GET", "/tokenize", {"POST"}),
    ],
)
def test_another_method_is_refused_with_those_that_there_are(
    running: RunningServer, method: str, path: str, allowed: set[str]
) -> None:
    answer = requests.request(method, running.url + path, timeout=20)
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allowed


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unknown_path_of_the_api_is_a_404_in_json(running: RunningServer, method: str) -> None:
    answer = requests.request(method, f"{running.url}/v1/embeddings", timeout=20)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_sockets_are_told_by_the_types_of_their_events() -> None:
    told = document(OPERATIONS, with_keys=False)
    socket = told["x-websockets"]["/v1/responses"]
    assert "response.create" in socket["client"]["discriminator"]["mapping"]
    assert {"response.output_text.delta", "error"} <= set(socket["server"]["discriminator"]["mapping"])
