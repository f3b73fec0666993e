"""The deployment files, checked with the tools that read them; no container engine is needed."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
import yaml

from chatsrv.settings import ServerSettings
from tests.machine import need_program

ROOT = Path(__file__).parent.parent
PASSWORD = "correcthorse"
PINNED_IMAGE = re.compile(r"[a-z./-]+:v?\d+\.\d+\.\d+[\w.-]*")


def _compose(*options: str, password: str | None = PASSWORD) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "REDIS_PASSWORD"}
    if password is not None:
        environment["REDIS_PASSWORD"] = password
    command = [need_program("docker-compose"), "--file", "docker-compose.yml", *options, "config"]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def services() -> dict[str, dict[str, Any]]:
    """All services of all profiles, as docker-compose understands them."""
    done = _compose("--profile", "gpu", "--profile", "nginx", "--profile", "watch")
    assert done.returncode == 0, done.stderr
    return yaml.safe_load(done.stdout)["services"]


@pytest.mark.parametrize("options", [(), ("--profile", "gpu"), ("--profile", "nginx"), ("--profile", "watch")])
def test_each_profile_is_a_valid_file(options: tuple[str, ...]) -> None:
    done = _compose(*options)
    assert done.returncode == 0, done.stderr


def test_without_a_password_nothing_starts() -> None:
    done = _compose(password=None)
    assert done.returncode != 0
    assert "choose one, of letters and digits, in .env" in done.stderr


def test_every_image_is_pinned(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert PINNED_IMAGE.fullmatch(service["image"]), f"{name}: {service['image']}"


def test_every_service_is_locked_down(services: dict[str, dict[str, Any]]) -> None:
    for name, service in services.items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name


def test_every_server_asks_for_keys(services: dict[str, dict[str, Any]]) -> None:
    servers = [name for name in services if name.startswith("chatsrv")]
    assert len(servers) == 3
    for name in servers:
        folder, _, file = services[name]["environment"]["CHATSRV_API_KEYS"].rpartition("/")
        assert file == "keys.toml"
        assert f"{ROOT}/keys:{folder}:ro" in services[name]["volumes"]
        assert "CHATSRV_LISTEN_WITHOUT_KEYS" not in services[name]["environment"]
        assert services[name]["environment"]["FORWARDED_ALLOW_IPS"] == "*"  # for cookies that are Secure


def test_a_server_has_the_time_to_drain(services: dict[str, dict[str, Any]]) -> None:
    for name in (name for name in services if name.startswith("chatsrv")):
        minutes, seconds = re.fullmatch(r"(?:(\d+)m)?(?:(\d+)s)?", services[name]["stop_grace_period"]).groups("0")
        assert int(minutes) * 60 + int(seconds) > ServerSettings().drain_timeout_s + 10, name


def test_the_store_cannot_be_reached_from_outside(services: dict[str, dict[str, Any]]) -> None:
    assert "ports" not in services["redis"]
    assert list(services["redis"]["networks"]) == ["store"]
    for name in ("nginx", "prometheus", "grafana"):
        assert "store" not in services[name]["networks"]
    for name, service in services.items():
        for port in service.get("ports", []):
            assert str(port).startswith("127.0.0.1:"), f"{name} publishes {port}"


def test_prometheus_asks_the_servers_by_names_that_they_answer_to(services: dict[str, dict[str, Any]]) -> None:
    (job,) = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text(encoding="utf-8"))["scrape_configs"]
    servers = {name for name in services if name.startswith("chatsrv")}
    assert {target.removesuffix(":8000") for target in job["static_configs"][0]["targets"]} == servers
    for name in servers:
        assert set(services[name]["environment"]["CHATSRV_ALLOWED_HOSTS"].split(",")) >= servers
        assert services[name]["networks"].keys() & services["prometheus"]["networks"].keys()
    folder = job["authorization"]["credentials_file"].rpartition("/")[0]
    assert f"{ROOT}/secrets:{folder}:ro" in services["prometheus"]["volumes"]


def test_grafana_finds_its_dashboard_and_prometheus(services: dict[str, dict[str, Any]]) -> None:
    folder = ROOT / "deploy" / "grafana"
    dashboard = json.loads((folder / "dashboards" / "chatsrv.json").read_text(encoding="utf-8"))
    provisioning = folder / "provisioning"
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    (provider,) = yaml.safe_load((provisioning / "dashboards" / "chatsrv.yml").read_text())["providers"]
    assert source["url"] == "http://prometheus:9090"
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {source["uid"]}
    volumes = services["grafana"]["volumes"]
    assert f"{folder}/dashboards:{provider['options']['path']}:ro" in volumes
    assert f"{provisioning}:/etc/grafana/provisioning:ro" in volumes


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def redis_port(services: dict[str, dict[str, Any]], tmp_path: Path) -> Iterator[int]:
    """Redis as its service starts it, but for the folder and the port."""
    need_program("redis-server")
    port = _free_port()
    script = services["redis"]["command"][-1].replace("$$", "$")
    script = script.replace("'dir /data'", f"{shlex.quote(f'dir {tmp_path}')} 'port {port}' 'bind 127.0.0.1'")
    environment = {**os.environ, **services["redis"]["environment"]}
    server = subprocess.Popen(["sh", "-c", script], env=environment)
    try:
        yield port
    finally:
        with redis.Redis(port=port, password=PASSWORD) as client:
            client.shutdown(nosave=True)
        server.wait(timeout=10)


def test_redis_asks_for_the_password_and_keeps_a_log(redis_port: int) -> None:
    with redis.Redis(port=redis_port, password=PASSWORD, decode_responses=True) as client:
        _wait_for(client)
        assert client.config_get("appendonly")["appendonly"] == "yes"
        assert client.config_get("appendfsync")["appendfsync"] == "everysec"
        assert client.config_get("maxmemory")["maxmemory"] == str(2**30)
        assert client.config_get("maxmemory-policy")["maxmemory-policy"] == "noeviction"
    with redis.Redis(port=redis_port) as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def _wait_for(client: redis.Redis) -> None:
    for _ in range(100):
        try:
            client.ping()
            return
        except redis.ConnectionError:
            time.sleep(0.05)
    raise AssertionError("Redis did not start")


def test_nginx_accepts_its_configuration(tmp_path: Path) -> None:
    text = (ROOT / "deploy" / "nginx.conf").read_text(encoding="utf-8")
    text = re.sub(r"server chatsrv[\w-]*:8000", "server 127.0.0.1:8000", text)  # names of the compose network
    (tmp_path / "nginx.conf").write_text(text, encoding="utf-8")
    command = [need_program("nginx"), "-t", "-c", str(tmp_path / "nginx.conf"), "-e", "stderr"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def _stages() -> list[list[str]]:
    """Instructions of the Dockerfile by build stage, continued lines joined, comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    instructions = re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines()
    starts = [i for i, line in enumerate(instructions) if line.startswith("FROM ")]
    return [instructions[start:end] for start, end in zip(starts, [*starts[1:], None], strict=True)]


def test_every_stage_starts_from_one_pinned_image() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    base = re.search(r"^ARG BASE=(.*)$", text, re.MULTILINE)
    assert base is not None
    assert PINNED_IMAGE.fullmatch(base[1])
    assert all(stage[0].split()[1] == "${BASE}" for stage in _stages())


def test_the_final_image_has_no_build_tools_and_no_root() -> None:
    final = _stages()[-1]
    assert not any(re.search(r"apt-get|g\+\+|pip install|npm", line) for line in final)
    users = [line.split()[1] for line in final if line.startswith("USER ")]
    assert users
    assert all(int(user) > 0 for user in users)


def test_everything_that_is_copied_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for line in (line for stage in _stages() for line in stage if line.startswith("COPY ")):
        words = line.split()[1:]
        if words[0].startswith("--from="):
            continue
        for source in words[:-1]:
            assert f"!{source.split('/')[0]}" in ignored, f"{source} is not sent to the builder"
            assert (ROOT / source).exists(), f"{source} does not exist"


def test_what_the_build_stage_copies_is_enough_to_install_and_run(tmp_path: Path) -> None:
    """Its own pip command in a clean folder, with the tools that are installed instead of downloaded ones."""
    source, site = tmp_path / "src", tmp_path / "site"
    (source / "web" / "dist").mkdir(parents=True)
    (source / "web" / "dist" / "index.html").write_text("the page, of another stage")
    for words in (line.split()[1:] for line in _stages()[1] if line.startswith("COPY ") and "--from=" not in line):
        for name in words[:-1]:
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            copy(ROOT / name, source / (words[-1] if len(words) == 2 else name))
    assert "RUN pip install --no-cache-dir --build-constraint constraints.txt --no-deps ." in _stages()[1]
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    subprocess.run([*pip, "--target", str(site), "."], cwd=source, check=True)
    command = ["-c", "import chatsrv, chatsrv.cli; print(chatsrv.__file__); chatsrv.cli.main(['key', 'ada', 'user'])"]
    environment = {"PATH": "", "PYTHONPATH": str(site)}
    done = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(site))
    assert 'owner = "ada"' in done.stdout
    assert (site / "web" / "dist" / "index.html").exists()
    assert {path.name for path in (site / "kernels").glob("*.cpp")} == {
        path.name for path in ROOT.glob("kernels/*.cpp")
    }
