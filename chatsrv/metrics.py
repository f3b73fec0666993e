"""``/metrics``: what Prometheus reads. docs/operations.md tells what each name means."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from chatsrv import counters  # noqa: F401 - they register themselves
from chatsrv.health import engine_advances
from chatsrv.services import Services, services
from engine import EngineStats, Histogram


async def metrics(request: Request) -> Response:
    """For admins: it tells of what all owners do together."""
    found = services(request)
    snapshot = CollectorRegistry()
    snapshot.register(_Snapshot(found, store_ok=await found.store.is_reachable()))
    text = generate_latest(REGISTRY) + generate_latest(snapshot)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


class _Snapshot(Collector):
    """What can be asked for when it is wanted, and need not be counted as it happens."""

    def __init__(self, found: Services, *, store_ok: bool) -> None:
        self._found = found
        self._store_ok = store_ok

    def collect(self) -> Iterator[Metric]:
        yield GaugeMetricFamily("chatsrv_store_up", "1 while the store takes writes.", self._store_ok)
        yield GaugeMetricFamily("chatsrv_engine_up", "1 while the engine advances.", engine_advances(self._found))
        stats = self._found.engine.stats()
        yield from _occupancy(stats)
        yield from _work(stats)


def _occupancy(stats: EngineStats) -> Iterator[Metric]:
    held = stats.occupancy
    blocks = GaugeMetricFamily("chatsrv_engine_blocks", "Blocks by state.", labels=["pool", "state"])
    for pool, counts in (("device", held.blocks), ("cpu", held.swap_blocks)):
        for state, count in counts._asdict().items():
            blocks.add_metric([pool, state], count)
    yield blocks
    slots = GaugeMetricFamily(
        "chatsrv_engine_slots", "Slots in block tables, and those with a token.", labels=["state"]
    )
    slots.add_metric(["allocated"], held.num_slots_allocated)
    slots.add_metric(["filled"], held.num_slots_filled)
    yield slots
    requests = GaugeMetricFamily(
        "chatsrv_engine_requests", "Requests by state and class.", labels=["state", "priority"]
    )
    for state, by_class in (("running", held.num_running), ("waiting", held.num_waiting)):
        for priority, count in by_class.items():
            requests.add_metric([state, priority], count)
    yield requests


def _work(stats: EngineStats) -> Iterator[Metric]:
    yield CounterMetricFamily("chatsrv_engine_steps", "Steps of the engine.", stats.num_steps)
    parts = {name.removesuffix("_s"): seconds for name, seconds in stats.times._asdict().items()}
    yield _counter("chatsrv_engine_step_seconds", "Time of all steps, by what it was spent on.", "part", parts)
    tokens = {
        "prompt": stats.num_prompt_tokens,
        "cached": stats.num_cached_tokens,
        "output": stats.num_output_tokens,
    }
    yield _counter(
        "chatsrv_engine_tokens", "Tokens of prompts, those of them found in the cache, and drawn.", "kind", tokens
    )
    ways = {"swap": stats.preemptions.swap, "recompute": stats.preemptions.recompute}
    yield _counter("chatsrv_engine_preemptions", "Requests set aside, by how they come back.", "way", ways)
    yield _histogram(
        "chatsrv_engine_first_token_seconds", "From submission to first token.", stats.time_to_first_token_s
    )
    yield _histogram("chatsrv_engine_inter_token_seconds", "Between the tokens of a request.", stats.inter_token_s)


def _counter(name: str, help_text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, help_text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family


def _histogram(name: str, help_text: str, histogram: Histogram) -> Metric:
    buckets, total = [], 0
    for bound, count in zip([*map(str, histogram.bounds), "+Inf"], histogram.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return HistogramMetricFamily(name, help_text, buckets=buckets, sum_value=histogram.total)
