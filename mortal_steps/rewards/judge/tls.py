"""Certificates that all connections of this process trust, read once: that takes 0.1 s of CPU."""

from __future__ import annotations

import functools
import ssl

import httpx


@functools.cache
def trusted() -> ssl.SSLContext:
    """What httpx would make for each client."""
    return httpx.create_ssl_context()
