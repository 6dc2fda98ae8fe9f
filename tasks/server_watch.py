"""Lets a run continue while the Prefect server is away.

Training needs no server. Task runs reach the server as events, which wait in memory while it is
away. The run continues without it for `logging.server_timeout_s`, as long as fewer events wait than
the server can take at once, and its history is complete in the end. After that time the run ends as
if it had been interrupted.

A server that has not heard of a run for a while may have given it up. But the run is alive, so it
sets itself back to Running before the server starts it a second time, or while the server does so.

If somebody deletes the flow run, or the server's database is gone, the run continues and sends no
more events: the server could not write them to its database.

A worker tells the process that it started of a cancellation. If there is no worker, as for `mortal
train`, or if it is gone, the run sees the cancellation here and stops in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import UUID

from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import ObjectNotFound
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import (
    PREFECT_CLIENT_MAX_RETRIES,
    get_current_settings,
    temporary_settings,
)
from prefect.states import Running

from mortal_steps.errors import ServerError
from mortal_tasks.best_effort import UNANSWERED
from mortal_tasks.deployment_slot import keep_slot
from mortal_tasks.history import History, history
from mortal_tasks.state_events import send_fewer_events

POLL_S = 2.0
ANSWER_TIMEOUT_S = 5.0
WRITTEN_POLL_S = 0.25
LOST_AFTER_S = 10.0
"""The server writes events to its database within two seconds, or a few more when it is busy."""
NOTHING_WRITTEN_S = 30.0
"""Seconds without a task run more in its database after which a server counts as unable to write,
as on a full disk."""
GIVEN_UP = {StateType.CRASHED, StateType.SCHEDULED, StateType.PENDING, StateType.FAILED}
"""States in which automations, workers or a second process may put the flow run of a living
process."""
CANCELLED_WITHIN_S = 30.0
"""Time within which a worker tells the process of a run that it is cancelled. It asks each 10 s."""
NO_PLACE = "Deployment "
"""How the message begins when Prefect itself cancels a flow run, because another one has the slot
of its deployment or the deployment is gone. A run that the server believed dead may be alive
then."""
MAX_UNRECORDED = 2000
"""Task runs that may wait for the server. Each has up to three events, and a server that comes back
drops events beyond 10,000."""


class ServerWatch:
    """Whether the Prefect server answers, and since when it has not."""

    def __init__(
        self,
        client: PrefectClient,
        flow_run_id: UUID,
        patience_s: float,
        on_cancelled: Callable[[str], None],
    ) -> None:
        self._client = client
        self._flow_run_id = flow_run_id
        self._patience_s = patience_s
        self._on_cancelled = on_cancelled
        self._cancelling_since: float | None = None
        self._history = History()
        self._away_since: float | None = None
        self._lost = False
        self._changed = asyncio.Event()

    @property
    def away(self) -> bool:
        """Whether the server did not answer when it was last asked."""
        return self._away_since is not None

    @property
    def forgotten(self) -> bool:
        """Whether the server answers that it does not know this flow run."""
        return self._history.muted

    async def ready(self) -> None:
        """Return when the run may take another step. Raises `ServerError` if the server is gone for
        good."""
        while self.away and not self._lost and len(self._history) > MAX_UNRECORDED:
            await self._change()
        self._raise_if_lost()

    async def back(self) -> None:
        """Return when the server answers. Raises `ServerError` if it is gone for good."""
        while self.away and not self._lost:
            await self._change()
        self._raise_if_lost()

    async def written_down(self) -> None:
        """Return when the server's database has every task run that has ended.

        A server that was killed may have lost the last ones unnoticed; they are sent again. If it
        writes nothing for `NOTHING_WRITTEN_S`, this gives up, logs so and returns. Raises
        `ServerError` if the server is gone for good.
        """
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            await self.back()
            self._history.tell_short()
            if self.forgotten:
                return
            written = told = time.monotonic()
            await self._forget()
            while left := len(self._history):
                await asyncio.sleep(WRITTEN_POLL_S)
                if self.away:
                    await self.back()
                    written = told = time.monotonic()
                await self._forget()
                now = time.monotonic()
                if len(self._history) < left:
                    written = now
                if now - written > NOTHING_WRITTEN_S:
                    say = "%d task runs are not shown: the server has written none down for %.0f s"
                    get_run_logger().warning(say, left, now - written)
                    return
                if now - told > LOST_AFTER_S:
                    self._history.tell_again()
                    told = now

    async def _forget(self) -> None:
        """Ask which task runs the database has, and forget these. If the server does not answer,
        `watch` will find out."""
        with contextlib.suppress(*UNANSWERED):
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await self._history.forget_recorded(self._client)

    async def watch(self) -> None:
        """Ask the server every two seconds whether it is there; to be run in a task of its own."""
        # A request that is retried would hide a server that was away for a moment.
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            while not self._lost:
                await asyncio.sleep(POLL_S)
                self._note(answers=await self._answers())
                self._lost = self._seconds_away() > self._patience_s
                self._changed.set()
        self._stop_retrying()

    def let_go(self) -> None:
        """If the server is gone for good, also drop what the run has sent since then about its
        end."""
        if self._lost:
            self._stop_retrying()

    @property
    def kept(self) -> History:
        """Task runs that the server may not have written down."""
        return self._history

    async def _answers(self) -> bool:
        """Whether the server answers. If it does, also forget what it has written down and tell it
        that this run is alive."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if await self._client.api_healthcheck() is not None:
                    return False
                await self._history.forget_recorded(self._client)
                await self._stay_running()
        except UNANSWERED:
            return False
        return True

    async def _stay_running(self) -> None:
        """Set the flow run back to Running if the server gave it up. A cancellation stays:
        the run is stopped."""
        try:
            flow_run = await self._client.read_flow_run(self._flow_run_id)
        except ObjectNotFound:
            self._note_forgotten()
            return
        if self.forgotten:
            get_run_logger().warning("the server knows this flow run again, and is told of it")
            self._history.muted = False
            self._history.tell_again()
        state = flow_run.state
        if state is None:
            return
        if self._is_cancelled(state, has_worker=flow_run.deployment_id is not None):
            self._on_cancelled("a cancellation on the Prefect server")
        elif state.type in GIVEN_UP:
            get_run_logger().warning(
                "the server believes that this flow run is %s; it is running", state.name
            )
            running: State[None] = Running(message=f"Was set to {state.name} while it ran.")
            await self._client.set_flow_run_state(self._flow_run_id, running, force=True)

    def _note_forgotten(self) -> None:
        if not self.forgotten:
            self._history.muted = True
            self._history.give_up()
            get_run_logger().warning(
                "the server does not know this flow run any more: somebody has deleted it, or the "
                "server's database. The run goes on, but Prefect's pages do not show it, and "
                "another run may begin beside it; `mortal stop` ends it"
            )

    def _is_cancelled(self, state: State[Any], *, has_worker: bool) -> bool:
        """Whether the flow run is cancelled, and no worker has told this process so far."""
        if state.type == StateType.CANCELLED:
            return not (state.message or "").startswith(NO_PLACE)
        if state.type != StateType.CANCELLING:
            self._cancelling_since = None
            return False
        now = time.monotonic()
        self._cancelling_since = self._cancelling_since or now
        return not has_worker or now - self._cancelling_since > CANCELLED_WITHIN_S

    def _note(self, *, answers: bool) -> None:
        url, say = self._client.api_url, get_run_logger().warning
        if answers and self.away:
            say("%s answers again after %.0f s", url, self._seconds_away())
            self._away_since = None
            self._history.tell_again()
        elif not answers and not self.away:
            say("%s does not answer; continuing without it for up to %g s", url, self._patience_s)
            self._away_since = time.monotonic()

    def _seconds_away(self) -> float:
        return 0.0 if self._away_since is None else time.monotonic() - self._away_since

    async def _change(self) -> None:
        self._changed.clear()
        await self._changed.wait()

    def _raise_if_lost(self) -> None:
        if self._lost:
            raise ServerError(
                f"the Prefect server at {self._client.api_url} has not answered for "
                f"{self._seconds_away():.0f} s (logging.server_timeout_s is "
                f"{self._patience_s:g})"
            )

    def _stop_retrying(self) -> None:
        """Let this process end soon: there is no server to report to."""
        self._history.give_up()
        get_current_settings().client.max_retries = 0


def _ignore(reason: str) -> None:
    pass


@contextlib.asynccontextmanager
async def watch_server(
    patience_s: float, on_cancelled: Callable[[str], None] = _ignore
) -> AsyncIterator[ServerWatch]:
    """Watch the server of this flow run for the time of the block.

    `on_cancelled` is given a reason to stop when the flow run is cancelled and no worker tells this
    process.

    `ready()` before each step and `written_down()` at the end raise a `ServerError` once it has not
    answered for `patience_s` seconds.
    """
    send_fewer_events()
    keep_slot()
    async with get_client() as client:
        watch = ServerWatch(client, UUID(flow_run.id), patience_s, on_cancelled)
        token = history.set(watch.kept)
        task = asyncio.create_task(watch.watch())
        try:
            yield watch
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            watch.kept.tell_short()
            history.reset(token)
            watch.let_go()
