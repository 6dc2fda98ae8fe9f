"""One call of a container: submitted once, attached to by whoever comes back, polled to its end.

A call is spawned, and its id committed to the run directory under the call's key before anything
waits for it. A flow that was killed meanwhile finds the id there and waits for the same call. Only
a death between the two spawns it twice, which the workers' methods allow: they answer from the
store what is done already.

| what Modal raises | what it means here |
|---|---|
| the poll's own timeout | the call runs; ask again, until the deadline |
| the connection, a server error, too many requests | ask again, until the deadline |
| a lost container, its timeout, an expired output, a cancelled call | `WorkerLostError` |
| no token, no such app or class, another client's version | `ComputeError`, with the remedy |
| anything else | `WorkerError` |
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import modal
from modal import exception

from mortal_steps.compute.modal.host import Order, Outcome
from mortal_steps.errors import (
    ComputeError,
    CorruptFileError,
    MortalError,
    WorkerError,
    WorkerLostError,
)
from mortal_steps.store import RunStore

logger = logging.getLogger(__name__)

FOLDER = "calls"
POLL_S = 50.0
"""One request for an outcome waits this long; Modal's server ends those beyond 55 s."""
BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Between polls that fail, the last one again and again."""

UNREACHABLE = (
    exception.ServiceError,
    exception.InternalError,
    exception.ConnectionError,
    exception.ResourceExhaustedError,
    exception.ClientClosed,
    OSError,
)
LOST = (
    exception.InternalFailure,
    exception.FunctionTimeoutError,
    exception.OutputExpiredError,
    exception.RemoteError,
)
REFUSED = (
    exception.AuthError,
    exception.NotFoundError,
    exception.PermissionDeniedError,
    exception.VersionError,
    exception.InvalidError,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Submitted:
    """A call that was spawned and whose outcome nobody has taken yet."""

    call_id: str
    """Modal's name of it."""
    order_sha256: str
    """Digest of what was asked for."""
    spawned_at: float
    """Seconds since the epoch."""


class Calls:
    """The calls of one run. Each may take `deadline_s` seconds from its submission on."""

    def __init__(self, store: RunStore, deadline_s: float) -> None:
        self._store = store
        self._deadline_s = deadline_s
        self._in_flight: dict[str, str] = {}
        """Modal's id of every call that this process waits for, by key."""

    async def outcome(self, key: str, function: modal.Function[..., Any, Any], order: Order) -> Any:
        """What the call of `key` gives; raises as the table above says, and the worker's error."""
        submitted = self._find(key, order) or await self._submit(key, function, order)
        self._in_flight[key] = submitted.call_id
        try:
            outcome: Outcome = await self._wait(key, submitted)
        except MortalError:
            self._forget(key)
            raise
        self._forget(key)
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    async def cancel_all(self) -> None:
        """End the containers of every call that nobody waits for any more."""
        for key, call_id in list(self._in_flight.items()):
            await self._cancel(key, call_id)
            self._forget(key)

    def _find(self, key: str, order: Order) -> Submitted | None:
        """The call submitted under this key, if it asks for the same."""
        try:
            found = self._store.find_record(_path(key), Submitted)
        except CorruptFileError as error:
            logger.warning("%s; the call is submitted again", error)
            return None
        if found is None or found[1].order_sha256 != _digest(order):
            return None
        logger.info("attaching to %s, submitted as %s", key, found[1].call_id)
        return found[1]

    async def _submit(
        self, key: str, function: modal.Function[..., Any, Any], order: Order
    ) -> Submitted:
        began, failures = time.time(), 0
        while True:
            try:
                call = await function.spawn.aio(order)
                break
            except UNREACHABLE as error:
                self._check_deadline(key, began, error)
                await _back_off(key, failures, error)
                failures += 1
            except REFUSED as error:
                raise _refusal(error) from error
        submitted = Submitted(
            call_id=call.object_id, order_sha256=_digest(order), spawned_at=time.time()
        )
        self._store.write_record(_path(key), submitted, Submitted)
        return submitted

    async def _wait(self, key: str, submitted: Submitted) -> Outcome:
        failures = 0
        while True:
            call = modal.FunctionCall.from_id(submitted.call_id)
            left = submitted.spawned_at + self._deadline_s - time.time()
            try:
                outcome: Outcome = await call.get.aio(timeout=max(0.0, min(POLL_S, left)))
                return outcome
            except TimeoutError:
                failures = 0
                if left <= POLL_S:
                    await self._cancel(key, submitted.call_id)
                    raise WorkerLostError(
                        f"{key} ({submitted.call_id}) has no outcome after {self._deadline_s:.0f} s"
                        " (compute.modal.deadline_s); it was cancelled"
                    ) from None
            except LOST as error:
                raise WorkerLostError(
                    f"{key} ({submitted.call_id}) was lost: {type(error).__name__}: {error}"
                ) from error
            except UNREACHABLE as error:
                self._check_deadline(key, submitted.spawned_at, error)
                await _back_off(key, failures, error)
                failures += 1
            except REFUSED as error:
                raise _refusal(error) from error
            except Exception as error:
                raise WorkerError(f"{key}: {type(error).__name__}: {error}") from error

    def _check_deadline(self, key: str, began: float, error: Exception) -> None:
        if time.time() > began + self._deadline_s:
            raise WorkerLostError(
                f"{key}: Modal could not be reached for {self._deadline_s:.0f} s "
                f"(compute.modal.deadline_s): {error}"
            ) from error

    async def _cancel(self, key: str, call_id: str) -> None:
        try:
            await modal.FunctionCall.from_id(call_id).cancel.aio(terminate_containers=True)
        except (exception.Error, OSError) as error:
            logger.warning("%s (%s) is not cancelled: %s", key, call_id, error)

    def _forget(self, key: str) -> None:
        self._in_flight.pop(key, None)
        self._store.path(_path(key)).unlink(missing_ok=True)


def _path(key: str) -> str:
    return f"{FOLDER}/{key.replace('/', '-')}.json"


def _digest(order: Order) -> str:
    content = json.dumps([order.method, _essence(order.payload)], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()


def _essence(value: Any) -> Any:
    """What is asked for, without how long things took before."""
    if is_dataclass(value):
        names = [field.name for field in fields(value) if field.name != "timing"]
        return {name: _essence(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {str(name): _essence(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_essence(item) for item in value]
    return value


async def _back_off(key: str, failures: int, error: Exception) -> None:
    logger.warning("%s: asking Modal again: %s: %s", key, type(error).__name__, error)
    await asyncio.sleep(BACKOFF_S[min(failures, len(BACKOFF_S) - 1)])


def _refusal(error: Exception) -> ComputeError:
    remedies = {
        exception.AuthError: "`modal setup` stores a token on this machine",
        exception.NotFoundError: "`mortal deploy` brings the app to Modal",
        exception.PermissionDeniedError: "use a token of the workspace that holds the app",
        exception.VersionError: "install the version of modal in requirements/constraints.txt",
    }
    remedy = next((text for kind, text in remedies.items() if isinstance(error, kind)), None)
    return ComputeError(f"Modal refuses: {error}" + (f"; {remedy}" if remedy else ""))
