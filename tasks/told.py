"""What the server is told in passing: a run neither waits for it nor ends with it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import httpx
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.logging import get_run_logger

T = TypeVar("T")

PATIENCE_S = 5.0
"""How long training waits for the server."""
NOT_TOLD = (
    *(TimeoutError, httpx.HTTPError, PrefectHTTPStatusError),
    ObjectNotFound,  # somebody has deleted it
    AssertionError,
)
"""The last is Prefect's for a request whose retries `server_watch` takes away while it pauses."""


async def told(call: Awaitable[T], otherwise: str) -> T | None:
    """What the server answers; None, and a line in the log that says `otherwise`, where it does
    not."""
    try:
        async with asyncio.timeout(PATIENCE_S):  # Prefect would try again for a minute
            return await call
    except NOT_TOLD as error:
        reason = str(error) or f"no answer in {PATIENCE_S:g} s"
        get_run_logger().warning("%s: %s", otherwise, reason)
        return None
