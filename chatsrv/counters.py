"""What is counted as it happens, for ``/metrics``.

Labels are of small fixed sets: no owner, no id, no path as a client wrote it.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, disable_created_metrics

disable_created_metrics()  # else each counter has a second series that only tells when it began

REQUESTS = Counter("chatsrv_http_requests", "HTTP requests, by route and status.", ["method", "route", "status"])
SOCKETS = Gauge("chatsrv_sockets", "WebSockets that are open.")
RESPONSES = Counter("chatsrv_responses", "Requests to the engine that have ended, by how.", ["outcome"])
REFUSALS = Counter("chatsrv_refusals", "Requests refused because a key was at a limit.", ["limit"])

for outcome in ("stop", "length", "aborted", "failed"):
    RESPONSES.labels(outcome)
for limit in ("connections", "running", "queued", "tokens_per_minute"):
    REFUSALS.labels(limit)
