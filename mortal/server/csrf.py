"""Keeps pages of other sites from using a server on loopback, which every local browser can reach.

A page may send requests to any address. The browser says which page sent a request (Origin), or how
the request came about (Sec-Fetch-Site). It does so for WebSockets as well, which CORS does not
cover. A site whose name was made to resolve to 127.0.0.1 is recognised by that name (Host).
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

ANY = "*"
POLICY_VIOLATION = 1008
"""WebSocket's code for a refusal."""


class OwnPagesOnly:
    """ASGI middleware that refuses requests from pages not at one of the `origins`. A client that
    is no browser sends no Origin, and is let through if it addresses one of their hosts."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).hostname for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request, one WebSocket, or the server's start and end."""
        if scope["type"] not in ("http", "websocket") or self._is_own(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            refusal = PlainTextResponse(
                "mortal's server answers only its own pages; name others in "
                "PREFECT_SERVER_CORS_ALLOWED_ORIGINS before you start it\n",
                status_code=403,
            )
            await refusal(scope, receive, send)

    def _is_own(self, headers: Headers) -> bool:
        if ANY in self._origins:
            return True
        if urlsplit(f"//{headers.get('host', '')}").hostname not in self._hosts:
            return False
        origin = headers.get("origin")
        if origin is not None:
            return origin in self._origins
        # Other sites may link to these pages, but not embed them as frames, pictures or scripts.
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        return not elsewhere or headers.get("sec-fetch-dest") == "document"
