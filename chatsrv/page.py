"""The web page: files of ``web/dist`` under a content security policy that allows nothing from elsewhere."""

from __future__ import annotations

from pathlib import Path

from starlette.responses import PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from chatsrv.errors import NotFound
from chatsrv.failures import refusal

FOLDER = Path(__file__).parent.parent / "web" / "dist"

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; font-src 'self'; "
    "connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


class Page:
    """Serves the built page to whatever no route is for; says how to build it where it is not."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._files = StaticFiles(directory=folder, html=True) if folder.is_dir() else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" or scope["path"].startswith("/v1/"):
            await refusal(NotFound("there is no such path; /openapi.json tells those that there are"))(
                scope, receive, send
            )
            return
        if self._files is None:
            await PlainTextResponse("The web page is not built; `make setup` builds it.", 404)(scope, receive, send)
            return
        response = await self._files.get_response(self._files.get_path(scope), scope)
        _add_headers(response, is_asset=scope["path"].startswith("/assets/"))
        await response(scope, receive, send)


def _add_headers(response: Response, is_asset: bool) -> None:
    """Assets have their hash in their name; everything else is asked for again each time."""
    response.headers["content-security-policy"] = CONTENT_SECURITY_POLICY
    response.headers["x-content-type-options"] = "nosniff"
    response.headers["referrer-policy"] = "no-referrer"
    response.headers["cross-origin-opener-policy"] = "same-origin"
    response.headers["cache-control"] = "public, max-age=31536000, immutable" if is_asset else "no-cache"
