"""Spans for OpenTelemetry: one for each HTTP request and socket upgrade, and below it one for each response.

They are sent where ``OTEL_EXPORTER_OTLP_ENDPOINT`` says, and the other standard variables are the SDK's. Without the
variable nothing of OpenTelemetry is imported. No span holds text.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry import trace

log = logging.getLogger("chatsrv")

ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

Attributes = Mapping[str, str | int | float | None]
"""One that is None is left out."""

_tracer: trace.Tracer | None = None


def set_up(environ: Mapping[str, str]) -> None:
    """Send spans, if the environment says where to."""
    if not any(environ.get(name) for name in ENDPOINTS):
        return
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        log.warning("no traces are sent, for a package of the extra chatsrv[otel] is missing: %s", error)
        return
    resource = Resource({"service.name": "chatsrv"}).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    use(provider)


def use(provider: trace.TracerProvider | None) -> None:
    """Let this provider make the spans; None: make none."""
    global _tracer
    _tracer = None if provider is None else provider.get_tracer("chatsrv")


class Span:
    """A span from here to ``end``, below the one of the request that this task belongs to. Nothing without a tracer.

    Args:
        headers: of a client's request, whose span this then is: below the client's own, if its ``traceparent`` tells
            of one, and above those of the responses that this task begins.
    """

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self._span = None if _tracer is None else _begin(_tracer, headers)

    def end(self, name: str, attributes: Attributes, *, failed: bool = False) -> None:
        """Once; later calls do nothing."""
        if self._span is None:
            return
        from opentelemetry.trace import StatusCode

        span, self._span = self._span, None
        span.update_name(name)
        span.set_attributes({key: value for key, value in attributes.items() if value is not None})
        if failed:
            span.set_status(StatusCode.ERROR)
        span.end()


def _begin(tracer: trace.Tracer, headers: Mapping[str, str] | None) -> trace.Span:
    from opentelemetry import context, propagate, trace

    if headers is None:
        return tracer.start_span("response")
    span = tracer.start_span("request", propagate.extract(headers), trace.SpanKind.SERVER)
    context.attach(trace.set_span_in_context(span))
    return span
