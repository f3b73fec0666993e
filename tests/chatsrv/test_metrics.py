"""What Prometheus reads: names that are documented, labels that are bounded, figures that are true."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from chatsrv.app import ROUTES
from chatsrv.new_key import entry
from tests.chatsrv.conftest import RunningServer, ServerThread, make_settings
from tests.chatsrv.sockets import Socket
from tests.fakes import WatchedEngine

ROOT = Path(__file__).parents[2]
OPERATIONS = ROOT / "docs" / "operations.md"

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with ServerThread(make_settings(tmp_path_factory.mktemp("data")), WatchedEngine()) as server:
        yield server


def scrape(server: RunningServer) -> Samples:
    text = httpx.get(f"{server.url}/metrics").text
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples.get((name, frozenset(labels.items())), 0.0)


def families(server: RunningServer) -> set[str]:
    """Names by which a query finds our own metrics."""
    text = httpx.get(f"{server.url}/metrics").text
    kinds = re.findall(r"^# TYPE (chatsrv_\w+) (\w+)$", text, re.MULTILINE)
    return {name for name, _ in kinds}


def test_every_name_is_documented_and_nothing_else_is(watched: RunningServer) -> None:
    documented = re.findall(r"^\| `(chatsrv_\w+)", OPERATIONS.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(documented) == sorted(families(watched))


def test_the_dashboard_asks_for_what_there_is(watched: RunningServer) -> None:
    """Metrics, and the labels by which they are picked and summed."""
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboards" / "chatsrv.json").read_text(encoding="utf-8"))
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    httpx.get(f"{watched.url}/v1/models")  # a counter with labels is there once it has counted
    labels: dict[str, set[str]] = {}
    for name, pairs in scrape(watched):
        labels.setdefault(name, {"instance", "job"}).update(label for label, _ in pairs)
    shown = set()
    for query in queries:
        names = re.findall(r"\b(?:chatsrv|process)_\w+", query)
        assert names, query
        for name in names:
            assert name in labels, f"{name} in {query} does not exist"
        sums = " ".join(re.findall(r"by \(([^)]*)\)", query))
        wanted = {*re.findall(r"(\w+)=~?\"", query), *re.findall(r"\w+", sums)}
        assert wanted <= set.union(*(labels[name] for name in names)), query
        shown |= {name.removesuffix("_bucket") for name in names}
    assert shown >= families(watched), "a metric is not on the dashboard"


def test_the_engine_is_shown_as_it_is(watched: RunningServer) -> None:
    samples = scrape(watched)
    assert value(samples, "chatsrv_engine_up") == value(samples, "chatsrv_store_up") == 1
    assert value(samples, "chatsrv_engine_blocks", pool="device", state="held") == 4
    assert value(samples, "chatsrv_engine_blocks", pool="cpu", state="free") == 8
    assert value(samples, "chatsrv_engine_slots", state="filled") == 48
    assert value(samples, "chatsrv_engine_requests", state="waiting", priority="flex") == 1
    assert value(samples, "chatsrv_engine_tokens_total", kind="cached") == 25
    assert value(samples, "chatsrv_engine_preemptions_total", way="recompute") == 2
    watched.engine.health_now.alive = False
    assert value(scrape(watched), "chatsrv_engine_up") == 0
    watched.engine.health_now.alive = True


def test_requests_responses_and_sockets_are_counted(watched: RunningServer) -> None:
    before = scrape(watched)
    with Socket(watched) as socket:
        socket.ask("x")
        assert value(scrape(watched), "chatsrv_sockets") == 1
        socket.ask("x", max_output_tokens=1)
        watched.engine.paused = True
        socket.create("x")
        socket.send("response.cancel", response_id=socket.until("response.in_progress")[0]["response"]["id"])
        socket.answer()
        watched.engine.paused = False
    httpx.get(f"{watched.url}/v1/responses/resp_{'x' * 32}")
    after = scrape(watched)

    def grown(name: str, **labels: str) -> float:
        return value(after, name, **labels) - value(before, name, **labels)

    assert value(after, "chatsrv_sockets") == 0
    outcomes = {outcome: grown("chatsrv_responses_total", outcome=outcome) for outcome in ("stop", "length", "aborted")}
    assert outcomes == {"stop": 1, "length": 1, "aborted": 1}
    route = "/v1/responses/{response_id}"
    assert grown("chatsrv_http_requests_total", method="GET", route=route, status="404") == 1
    assert grown("chatsrv_http_requests_total", method="GET", route="/v1/responses", status="101") == 1


def test_no_client_can_invent_a_label(watched: RunningServer) -> None:
    for method in ("BREW", "GET", "POST"):
        for path in ("/v1/models/a", "/v1/models/b", "/nothing/c", "/v1/conversations/d", "/assets/e.js", "//f"):
            httpx.request(method, watched.url + path)
    httpx.get(f"{watched.url}/v1/models", headers={"Host": "evil.example"})
    labels = [dict(key) for name, key in scrape(watched) if name == "chatsrv_http_requests_total"]
    routes = {getattr(route, "path", None) for route in ROUTES}
    assert {label["route"] for label in labels} <= routes | {"none"}
    assert {label["method"] for label in labels} <= {
        "GET",
        "HEAD",
        "POST",
        "PUT",
        "PATCH",
        "DELETE",
        "OPTIONS",
        "other",
    }


def test_refusals_are_counted_by_their_limit(serve: Callable[..., ServerThread], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(entry("ada", "admin", "ada-key") + "tokens_per_minute = 1\n")
    headers = {"Authorization": "Bearer ada-key"}
    with serve(WatchedEngine(), api_keys=str(keys)) as server:

        def refusals() -> float:
            text = httpx.get(f"{server.url}/metrics", headers=headers).text
            return float(re.findall(r'chatsrv_refusals_total\{limit="tokens_per_minute"\} (\S+)', text)[0])

        before = refusals()
        body = {"input": "x"}
        answers = [httpx.post(f"{server.url}/v1/responses", headers=headers, json=body) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 429, 429]
        assert refusals() - before == 2
