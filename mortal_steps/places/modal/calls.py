"""One call of a container: submitted once, attached to by whoever comes back, polled to its end.

A call is spawned, and its id committed to the run directory under the call's key before anything
waits for it. A flow that was killed meanwhile finds the id there and waits for the same call. Only
a death between the two spawns it twice, which the workers' methods allow: they answer from the
store what is done already. A call that has not begun when another flow takes the run over is
refused (messages.py); if that flow has attached to it, it asks anew.

The id stays until the result is taken, or the call is known to be lost: whatever else goes wrong,
the next one to ask attaches to it, or cancels it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import modal
from modal import exception

from mortal_steps.errors import LeaseLostError, WorkerError, WorkerLostError
from mortal_steps.places.modal.messages import CallRequest, CallResult
from mortal_steps.places.modal.retry import LOST, REFUSED, UNREACHABLE, call_with_retries
from mortal_steps.store import RunStore

logger = logging.getLogger(__name__)

FOLDER = "calls"
POLL_S = 50.0
"""One request for a result waits this long; Modal's server ends those beyond 55 s."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """A call that was spawned and whose result nobody has taken yet."""

    call_id: str
    """Modal's name of it."""
    request_sha256: str
    """Digest of what was asked for."""
    lease: int
    """Number of the lease that it was asked with."""
    spawned_at: float
    """Seconds since the epoch."""


class Calls:
    """The calls of one run. Each may take `deadline_s` seconds from its submission on."""

    def __init__(self, store: RunStore, deadline_s: float) -> None:
        self._store = store
        self._deadline_s = deadline_s

    async def result(
        self, key: str, function: modal.Function[Any, Any, Any], request: CallRequest
    ) -> CallResult:
        """Return what came of the call of `key`, a lost lease included. Raises `WorkerLostError`,
        `ComputeError` where Modal refuses, `WorkerError` where the container cannot answer."""
        found = await self._attach(key, request)
        if found is not None:
            result = await self._taken(key, found)
            if found.lease == request.lease or not isinstance(result.error, LeaseLostError):
                return result
            logger.info("%s had not begun when this flow took the run over; asking anew", key)
        return await self._taken(key, await self._submit(key, function, request))

    async def cancel_all(self) -> None:
        """End every call whose result nobody has taken, with its container; the next flow attaches
        to one that cannot be cancelled now."""
        for path in sorted(self._store.path(FOLDER).glob("*.json")):
            found = self._find(path.stem)
            if found is None or await self._cancel(path.stem, found.call_id):
                self._forget(path.stem)

    async def _attach(self, key: str, request: CallRequest) -> Submitted | None:
        """Return the call under this key if it asks for the same; others are cancelled."""
        found = self._find(key)
        if found is None:
            return None
        if found.request_sha256 != _digest(request):
            logger.info("%s, submitted as %s, asks for something else by now", key, found.call_id)
            await self._cancel(key, found.call_id)
            return None
        logger.info("attaching to %s, submitted as %s", key, found.call_id)
        return found

    def _find(self, key: str) -> Submitted | None:
        found = self._store.find_whole(_path(key), Submitted, "the work itself continues")
        return found[1] if found else None

    async def _submit(
        self, key: str, function: modal.Function[Any, Any, Any], request: CallRequest
    ) -> Submitted:
        call = await call_with_retries(
            key, lambda: function.spawn.aio(request), until=time.time() + self._deadline_s
        )
        submitted = Submitted(
            call_id=call.object_id,
            request_sha256=_digest(request),
            lease=request.lease,
            spawned_at=time.time(),
        )
        try:
            self._store.write_record(_path(key), submitted, Submitted)
        except BaseException:  # a full disk, or SIGTERM: nobody could attach to the call
            await self._cancel(key, call.object_id)
            raise
        return submitted

    async def _taken(self, key: str, submitted: Submitted) -> CallResult:
        """Return the result, which nobody needs to ask for again."""
        try:
            result = await self._wait(key, submitted)
        except (WorkerLostError, WorkerError):
            self._forget(key)
            raise
        self._forget(key)
        return result

    async def _wait(self, key: str, submitted: Submitted) -> CallResult:
        deadline = submitted.spawned_at + self._deadline_s
        while True:
            late = time.time() >= deadline
            result = await call_with_retries(
                key, lambda: self._poll(key, submitted.call_id, deadline), until=deadline
            )
            if result is not None:
                return result
            if late:
                await self._cancel(key, submitted.call_id)
                raise WorkerLostError(
                    f"{key} ({submitted.call_id}) has no result after {self._deadline_s:g} s "
                    "(compute.modal.call_timeout_s); it was cancelled"
                )

    async def _poll(self, key: str, call_id: str, deadline: float) -> CallResult | None:
        call = modal.FunctionCall.from_id(call_id)
        try:
            result: CallResult = await call.get.aio(
                timeout=min(POLL_S, max(0.0, deadline - time.time()))
            )
        except TimeoutError:
            return None
        except (
            *LOST,
            exception.NotFoundError,
        ) as error:  # Modal, or this account, has no such call
            raise WorkerLostError(
                f"{key} ({call_id}) was lost: {type(error).__name__}: {error}"
            ) from error
        except (*REFUSED, *UNREACHABLE):
            raise
        except Exception as error:
            raise WorkerError(f"{key} ({call_id}): {type(error).__name__}: {error}") from error
        return result

    async def _cancel(self, key: str, call_id: str) -> bool:
        """End the call with its container; whether that was done, or there is no such call."""
        try:
            await modal.FunctionCall.from_id(call_id).cancel.aio(terminate_containers=True)
        except exception.NotFoundError:
            return True
        except (exception.Error, OSError) as error:
            logger.warning("%s (%s) is not cancelled: %s", key, call_id, error)
            return False
        return True

    def _forget(self, key: str) -> None:
        self._store.path(_path(key)).unlink(missing_ok=True)


def _path(key: str) -> str:
    return f"{FOLDER}/{key.replace('/', '-')}.json"


def _digest(request: CallRequest) -> str:
    content = json.dumps([request.method, _essence(request.payload)], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def _essence(value: Any) -> Any:
    """Return what is asked for, without how long things took before."""
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name != "timing"]
        return {name: _essence(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): _essence(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_essence(item) for item in value]
    return value
