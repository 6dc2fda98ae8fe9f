"""Requests to the Prefect server that may fail: a run neither waits for them long nor ends with
them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import httpx
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.logging import get_run_logger

T = TypeVar("T")

PATIENCE_S = 5.0
"""Seconds that training waits for the server."""
UNANSWERED = (
    *(TimeoutError, httpx.HTTPError, PrefectHTTPStatusError),
    ObjectNotFound,  # somebody has deleted it
    ValueError,  # no answer of Prefect's, such as the page of a proxy in front of it
    AssertionError,
)
"""Errors of such a request. The last is Prefect's error for a request whose retries `server_watch`
has switched off while it pauses."""


async def best_effort(call: Awaitable[T], otherwise: str) -> T | None:
    """Return the server's answer. If there is none, return None and log `otherwise`."""
    try:
        async with asyncio.timeout(PATIENCE_S):  # Prefect would try again for a minute
            return await call
    except UNANSWERED as error:
        reason = str(error) or f"no answer in {PATIENCE_S:g} s"
        get_run_logger().warning("%s: %s", otherwise, reason)
        return None
