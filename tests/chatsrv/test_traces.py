"""Spans as a collector gets them: who called, which request, which response, how long; and never a text."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from chatsrv import traces
from engine import RequestFailed
from tests.chatsrv.conftest import RunningServer, wait_until
from tests.chatsrv.sockets import Socket

TRACE, CALLER = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
TRACEPARENT = {"traceparent": f"00-{TRACE:032x}-{CALLER:016x}-01"}


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    provider, exporter = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traces.use(provider)
    yield exporter
    traces.use(None)


def _wait_for(exporter: InMemorySpanExporter, *names: str) -> list[ReadableSpan]:
    """The spans, one by each of these names, when all have come."""
    wait_until(lambda: len(exporter.get_finished_spans()) >= len(names))
    by_name = {span.name: span for span in exporter.get_finished_spans()}
    assert sorted(span.name for span in exporter.get_finished_spans()) == sorted(names)
    return [by_name[name] for name in names]


def _attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def _is_below(span: ReadableSpan, parent: ReadableSpan) -> bool:
    return span.parent is not None and span.parent.span_id == parent.context.span_id


def test_a_request_and_its_response_belong_to_the_trace_of_the_caller(
    server: RunningServer, exporter: InMemorySpanExporter
) -> None:
    server.engine.enqueue("secret answer")
    body = {"input": "secret question", "service_tier": "flex"}
    answer = httpx.post(f"{server.url}/v1/responses", json=body, headers=TRACEPARENT)
    request, response = _wait_for(exporter, "POST /v1/responses", "response")
    assert (request.context.trace_id, request.parent and request.parent.span_id) == (TRACE, CALLER)
    assert request.kind is SpanKind.SERVER
    assert _attributes(request) == {
        "http.request.method": "POST",
        "http.route": "/v1/responses",
        "http.response.status_code": 200,
        "chatsrv.request_id": answer.headers["x-request-id"],
    }
    assert response.context.trace_id == TRACE
    assert _is_below(response, request)
    told = _attributes(response)
    assert 0 < told.pop("chatsrv.time_to_first_token_s") < 60
    assert told == {
        "gen_ai.response.id": answer.json()["id"],
        "gen_ai.response.model": "fake",
        "gen_ai.usage.input_tokens": answer.json()["usage"]["input_tokens"],
        "gen_ai.usage.output_tokens": answer.json()["usage"]["output_tokens"],
        "chatsrv.priority": "flex",
        "chatsrv.outcome": "stop",
    }
    assert "secret" not in "".join(span.to_json() for span in (request, response))


def test_responses_of_a_socket_are_below_its_upgrade_which_has_ended_by_then(
    server: RunningServer, exporter: InMemorySpanExporter
) -> None:
    with Socket(server, additional_headers=TRACEPARENT) as socket:
        (upgrade,) = _wait_for(exporter, "GET /v1/responses")
        assert upgrade.context.trace_id == TRACE
        assert _attributes(upgrade)["http.response.status_code"] == 101
        ids = [socket.ask(text)["id"] for text in ("x", "y")]
    wait_until(lambda: len(exporter.get_finished_spans()) == 3)
    responses = exporter.get_finished_spans()[1:]
    assert [_attributes(span)["gen_ai.response.id"] for span in responses] == ids
    assert all(_is_below(span, upgrade) for span in responses)


def test_a_completion_has_a_span_for_each_prompt(server: RunningServer, exporter: InMemorySpanExporter) -> None:
    body = {"prompt": ["a", "bcd"], "max_tokens": 2}
    answer = httpx.post(f"{server.url}/v1/completions", json=body).json()
    wait_until(lambda: len(exporter.get_finished_spans()) == 3)
    told = [_attributes(span) for span in exporter.get_finished_spans() if span.name == "response"]
    assert {one["gen_ai.response.id"] for one in told} == {answer["id"]}
    assert sorted(one["gen_ai.usage.input_tokens"] for one in told) == [1, 3]
    assert [one["gen_ai.usage.output_tokens"] for one in told] == [2, 2]
    assert {one["chatsrv.outcome"] for one in told} == {"length"}


def test_what_fails_is_marked(server: RunningServer, exporter: InMemorySpanExporter) -> None:
    server.engine.enqueue(RequestFailed("secret reason"))
    assert httpx.post(f"{server.url}/v1/responses", json={"input": "x"}).json()["status"] == "failed"
    (response,) = [span for span in _wait_for(exporter, "response", "POST /v1/responses") if span.name == "response"]
    assert response.status.status_code is StatusCode.ERROR
    assert _attributes(response)["chatsrv.outcome"] == "failed"
    assert "secret" not in response.to_json()


def test_without_the_variable_nothing_is_imported() -> None:
    code = "import sys; from chatsrv import traces; traces.set_up({}); span = traces.Span({}); span.end('x', {});"
    code += "sys.exit(any(name.startswith('opentelemetry') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_the_packages_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    traces.set_up({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "chatsrv[otel]" in caplog.text
    traces.Span({}).end("x", {})


def test_a_collector_gets_them_over_http() -> None:
    """From a process that ends at once, so that nothing may be left behind."""
    got: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            got.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Collector) as collector:
        thread = threading.Thread(target=collector.serve_forever)
        thread.start()
        endpoint = f"http://127.0.0.1:{collector.server_port}"
        code = "import os; from chatsrv import traces; traces.set_up(os.environ); traces.Span({}).end('GET /x', {})"
        environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_RESOURCE_ATTRIBUTES": "zone=here"}
        subprocess.run([sys.executable, "-c", code], env=environment, check=True)
        collector.shutdown()
        thread.join()
    ((path, body),) = got
    (told,) = ExportTraceServiceRequest.FromString(body).resource_spans
    assert path == "/v1/traces"
    about = {attribute.key: attribute.value.string_value for attribute in told.resource.attributes}
    assert about == {"service.name": "chatsrv", "zone": "here"}
    assert [span.name for scope in told.scope_spans for span in scope.spans] == ["GET /x"]
