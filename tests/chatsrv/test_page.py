"""The page comes with a policy that lets it load nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Route

from chatsrv.page import Page


@pytest.fixture
def client(tmp_path: Path) -> httpx.AsyncClient:
    dist = tmp_path / "dist"
    (dist / "assets").mkdir(parents=True)
    (dist / "index.html").write_text("<title>chatsrv</title>")
    (dist / "assets" / "app-1a2b.js").write_text("0")
    (tmp_path / "secret").write_text("secret")
    app = Starlette(routes=[Route("/{path:path}", Page(dist), methods=["GET"])])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


async def test_the_page_is_fresh_and_its_assets_are_kept(client: httpx.AsyncClient) -> None:
    page, asset = await client.get("/"), await client.get("/assets/app-1a2b.js")
    assert "chatsrv" in page.text
    assert page.headers["cache-control"] == "no-cache"
    assert "immutable" in asset.headers["cache-control"]


async def test_every_file_has_the_policy(client: httpx.AsyncClient) -> None:
    for path in ("/", "/assets/app-1a2b.js"):
        headers = (await client.get(path)).headers
        policy = headers["content-security-policy"]
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"


async def test_nothing_outside_the_folder(client: httpx.AsyncClient) -> None:
    for path in ("/../secret", "/%2e%2e/secret", "/assets/..%2f..%2fsecret"):
        assert (await client.get(path)).text != "secret"


async def test_an_unbuilt_page_says_how_to_build_it(tmp_path: Path) -> None:
    app = Starlette(routes=[Route("/{path:path}", Page(tmp_path / "missing"), methods=["GET"])])
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
        answer = await client.get("/")
    assert answer.status_code == 404
    assert "make setup" in answer.text
