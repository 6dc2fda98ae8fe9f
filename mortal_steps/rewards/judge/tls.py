"""The certificates that all connections of this process trust. They are read once, since that takes
0.1 s of CPU time."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def trusted() -> ssl.SSLContext:
    """The same SSL context that httpx would make for each client."""
    return httpx.create_ssl_context()
