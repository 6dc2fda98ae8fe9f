"""Keeps the pages of other sites out of a server on loopback, which every browser here can reach.

A page may send requests to any address. The browser says whose page it was (Origin), or how the
request came about (Sec-Fetch-Site), for WebSockets too, which CORS does not cover. A site whose
name is made to mean 127.0.0.1 is told by that name (Host).
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
    """ASGI middleware: requests of other pages than those at `origins` are refused.

    What is no browser sends no Origin and passes, if it uses one of the origins' hosts.
    """

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        self._origins = frozenset(origins)
        self._hosts = frozenset(urlsplit(origin).hostname for origin in origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, one WebSocket, or the server's start and end."""
        if scope["type"] not in ("http", "websocket") or self._is_own(Headers(scope=scope)):
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": POLICY_VIOLATION})
        else:
            refusal = PlainTextResponse(
                "mortal's server answers its own pages alone; name others in "
                "PREFECT_SERVER_CORS_ALLOWED_ORIGINS before it is started\n",
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
        # A page elsewhere may link here, and no more: no frame, no picture, no script.
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        return not elsewhere or headers.get("sec-fetch-dest") == "document"
