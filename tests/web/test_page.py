"""What the page weighs and what it is made of, as built."""

from __future__ import annotations

import gzip
import json
import re

import httpx

from tests.web.conftest import ROOT, OpenPage

DIST = ROOT / "web" / "dist"
MAX_COMPRESSED_BYTES = 250_000


def test_the_page_is_light() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in DIST.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < MAX_COMPRESSED_BYTES, sizes


def test_the_page_comes_compressed(address: str) -> None:
    index = httpx.get(address).text
    for asset in re.findall(r'(?:src|href)="(/assets/[^"]+)"', index):
        with httpx.stream("GET", f"{address}{asset}") as answer:
            assert answer.headers["content-encoding"] == "gzip"
            assert len(b"".join(answer.iter_raw())) < MAX_COMPRESSED_BYTES


def test_little_stands_between_an_empty_cache_and_the_first_paint(open_page: OpenPage) -> None:
    """Counted and not timed: the files that are there by then, and what they weigh on the wire."""
    page = open_page()
    paint_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    files = page.evaluate(
        """paint_ms => performance.getEntriesByType('resource')
          .filter(({ startTime, initiatorType }) => startTime < paint_ms && initiatorType !== 'fetch')
          .map(({ name, encodedBodySize }) => [new URL(name).pathname, encodedBodySize])""",
        paint_ms,
    )
    assert len({path for path, _ in files}) <= 4, files
    assert sum(size for _, size in files) < 160_000, files


def test_the_page_runs_under_a_policy_that_allows_nothing_inline(address: str) -> None:
    response = httpx.get(address)
    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", response.text)


def test_the_page_names_no_other_host(address: str) -> None:
    assert not re.search(r"(?:src|href)=\"(?:https?:)?//", httpx.get(address).text)


def test_the_lock_names_no_registry() -> None:
    packages = json.loads((ROOT / "web" / "package-lock.json").read_text(encoding="utf-8"))["packages"]
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert [name for name, package in packages.items() if name and "integrity" not in package] == []
