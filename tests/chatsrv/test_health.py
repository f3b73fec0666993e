"""Health tells of the engine, readiness of everything."""

from __future__ import annotations

import httpx
import pytest

from tests.chatsrv.conftest import RunningServer
from tests.fakes import FakeHealth


@pytest.mark.parametrize(
    ("health", "status"),
    [
        (FakeHealth(), 200),
        (FakeHealth(busy=True, last_step_age_s=60.0), 200),  # slow is not dead
        (FakeHealth(busy=False, last_step_age_s=9999.0), 200),  # idle is not dead
        (FakeHealth(busy=True, last_step_age_s=121.0), 503),
        (FakeHealth(alive=False), 503),
    ],
)
def test_healthy_means_that_work_advances(server: RunningServer, health: FakeHealth, status: int) -> None:
    server.engine.health_now = health
    assert httpx.get(f"{server.url}/healthz").status_code == status
    assert httpx.get(f"{server.url}/readyz").status_code == status


def test_ready_names_the_parts(server: RunningServer) -> None:
    assert httpx.get(f"{server.url}/readyz").json() == {"status": "ok", "engine": "ok", "store": "ok"}
