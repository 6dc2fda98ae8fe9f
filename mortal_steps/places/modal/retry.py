"""Asking Modal for something: what its exceptions mean for a run, and how long it is asked again.

| what Modal raises | what it means here |
|---|---|
| the connection, a server error, too many requests | ask again, for a while |
| a lost container, its timeout, an output that is gone | the call is lost: transient |
| no token, no such app, class or Volume, another client's version | refused: a `ComputeError` |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

import aiohttp
from modal import exception

from mortal_steps.errors import ComputeError, TransientError
from mortal_steps.system.disks import is_disk_error
from mortal_steps.system.retry import backoff, retry_async

logger = logging.getLogger(__name__)

T = TypeVar("T")

PATIENCE_S = 300.0
"""How long Modal is asked again where nothing else says so."""
FIRST_DELAY_S, LONGEST_DELAY_S = 0.5, 10.0
"""Between tries."""

UNREACHABLE = (
    exception.ServiceError,
    exception.InternalError,
    exception.ConnectionError,
    exception.ResourceExhaustedError,
    exception.ClientClosed,
    aiohttp.ClientError,  # files travel by HTTP
    OSError,
)
LOST = (
    exception.InternalFailure,
    exception.FunctionTimeoutError,
    exception.OutputExpiredError,
    exception.RemoteError,
    exception.DeserializationError,  # a container of an earlier release has answered
)
REFUSED = (
    exception.AuthError,
    exception.NotFoundError,
    exception.PermissionDeniedError,
    exception.VersionError,
    exception.InvalidError,
)

REMEDIES = {
    exception.AuthError: "`modal setup` stores a token on this machine",
    exception.NotFoundError: "`mortal deploy` creates it; pass the CONFIG if that names it",
    exception.PermissionDeniedError: "use a token of the workspace that holds it",
    exception.VersionError: "install the version of modal that requirements/constraints.txt names",
}


def refusal(error: Exception) -> ComputeError:
    found = [remedy for kind, remedy in REMEDIES.items() if isinstance(error, kind)]
    return ComputeError("; ".join([f"Modal refuses: {str(error).rstrip('.')}", *found]))


async def call_with_retries(
    what: str, ask: Callable[[], Awaitable[T]], *, until: float | None = None
) -> T:
    """Await `ask`, again while Modal cannot be reached, `until` a time (seconds since the epoch;
    default: for `PATIENCE_S`). Raises `TransientError` then, `ComputeError` where Modal refuses,
    and at once the `OSError` that is about a file of this machine."""

    async def attempt() -> T:
        try:
            return await ask()
        except REFUSED as error:
            raise refusal(error) from error
        except UNREACHABLE as error:
            if _is_about_a_file(error):
                raise
            how = f"{type(error).__name__}: {error}"
            raise _UnreachableError(f"{what}: Modal cannot be reached: {how}") from error

    return await retry_async(
        attempt,
        on=_UnreachableError,
        delays_s=backoff(FIRST_DELAY_S, LONGEST_DELAY_S),
        for_s=PATIENCE_S if until is None else until - time.time(),
        notice=lambda error: logger.warning("%s; asking again", error),
    )


class _UnreachableError(TransientError):
    """Modal did not answer."""


def _is_about_a_file(error: Exception) -> bool:
    """Return whether it is: an `OSError` of the connection names no file, and concerns no disk."""
    return isinstance(error, OSError) and (error.filename is not None or is_disk_error(error))
