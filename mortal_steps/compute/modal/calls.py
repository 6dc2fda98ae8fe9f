"""One call of a container: submitted once, attached to by whoever comes back, polled to its end.

A call is spawned, and its id committed to the run directory under the call's key before anything
waits for it. A flow that was killed meanwhile finds the id there and waits for the same call. Only
a death between the two spawns it twice, which the workers' methods allow: they answer from the
store what is done already.
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

from mortal_steps.compute.modal.asking import LOST, REFUSED, UNREACHABLE, patiently
from mortal_steps.compute.modal.host import Order, Outcome
from mortal_steps.errors import CorruptFileError, MortalError, WorkerError, WorkerLostError
from mortal_steps.store import RunStore

logger = logging.getLogger(__name__)

FOLDER = "calls"
POLL_S = 50.0
"""One request for an outcome waits this long; Modal's server ends those beyond 55 s."""


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

    async def outcome(
        self, key: str, function: modal.Function[Any, Any, Any], order: Order
    ) -> Outcome:
        """What came of the call of `key`.

        Raises `WorkerLostError`, `ComputeError` where Modal refuses, `WorkerError` for what the
        container could not answer.
        """
        submitted = self._find(key, order) or await self._submit(key, function, order)
        self._in_flight[key] = submitted.call_id
        try:
            outcome = await self._wait(key, submitted)
        except MortalError:
            self._forget(key)
            raise
        self._forget(key)
        return outcome

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
        self, key: str, function: modal.Function[Any, Any, Any], order: Order
    ) -> Submitted:
        call = await patiently(
            key, lambda: function.spawn.aio(order), until=time.time() + self._deadline_s
        )
        submitted = Submitted(
            call_id=call.object_id, order_sha256=_digest(order), spawned_at=time.time()
        )
        self._store.write_record(_path(key), submitted, Submitted)
        return submitted

    async def _wait(self, key: str, submitted: Submitted) -> Outcome:
        deadline = submitted.spawned_at + self._deadline_s
        while True:
            late = time.time() >= deadline
            outcome = await patiently(
                key, lambda: self._poll(key, submitted.call_id, deadline), until=deadline
            )
            if outcome is not None:
                return outcome
            if late:
                await self._cancel(key, submitted.call_id)
                raise WorkerLostError(
                    f"{key} ({submitted.call_id}) has no outcome after {self._deadline_s:g} s "
                    "(compute.modal.deadline_s); it was cancelled"
                )

    async def _poll(self, key: str, call_id: str, deadline: float) -> Outcome | None:
        """The outcome, or None if there is none yet."""
        call = modal.FunctionCall.from_id(call_id)
        try:
            outcome: Outcome = await call.get.aio(
                timeout=min(POLL_S, max(0.0, deadline - time.time()))
            )
        except TimeoutError:
            return None
        except LOST as error:
            raise WorkerLostError(
                f"{key} ({call_id}) was lost: {type(error).__name__}: {error}"
            ) from error
        except (*REFUSED, *UNREACHABLE):
            raise
        except Exception as error:
            raise WorkerError(f"{key} ({call_id}): {type(error).__name__}: {error}") from error
        return outcome

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
