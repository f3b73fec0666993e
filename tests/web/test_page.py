"""What the page weighs and what it is made of, as built."""

from __future__ import annotations

import gzip
import json
import re

import httpx

from tests.web.conftest import ROOT

DIST = ROOT / "web" / "dist"
MAX_COMPRESSED_BYTES = 250_000


def test_the_page_is_light() -> None:
    sizes = {path.name: len(gzip.compress(path.read_bytes())) for path in DIST.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < MAX_COMPRESSED_BYTES, sizes


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
