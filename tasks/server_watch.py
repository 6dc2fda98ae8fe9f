"""Lets a run continue while the Prefect server is away.

Training needs no server. Task runs reach the server as events, which Prefect's client keeps while
it is away. The run continues without it for `logging.server_timeout_s`; then it ends as if it had
been interrupted.

A server that has not heard of a run for a while may have given it up. But the run is alive, so it
sets itself back to Running before the server starts it a second time, or while the server does so.

If somebody deletes the flow run, or the server's database is gone, the run continues and sends no
more events: Prefect's server cannot store a task run whose flow run it does not know, and drops
those of other runs that it has received together with it.

A worker tells the process that it started of a cancellation. If there is no worker, as for `mortal
train`, or if it is gone, the run sees the cancellation here and stops in order.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from uuid import UUID

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.events.clients import NullEventsClient
from prefect.events.worker import EventsWorker
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.logging import get_run_logger
from prefect.runtime import flow_run
from prefect.settings import (
    PREFECT_CLIENT_MAX_RETRIES,
    get_current_settings,
    temporary_settings,
)
from prefect.states import Running

from mortal_steps.errors import ServerError
from mortal_tasks.prefect_patches import drop_events, keep_slot

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


def is_unreached(error: RuntimeError) -> bool:
    """Return whether this is Prefect's error where a flow run that is to begin finds no server."""
    return "Failed to reach API" in str(error)


async def best_effort(call: Awaitable[T], otherwise: str) -> T | None:
    """Return the server's answer. If there is none, return None and log `otherwise`."""
    try:
        async with asyncio.timeout(PATIENCE_S):  # Prefect would try again for a minute
            return await call
    except UNANSWERED as error:
        reason = str(error) or f"no answer in {PATIENCE_S:g} s"
        get_run_logger().warning("%s: %s", otherwise, reason)
        return None


POLL_S = 2.0
ANSWER_TIMEOUT_S = 5.0
GIVEN_UP = {StateType.CRASHED, StateType.SCHEDULED, StateType.PENDING, StateType.FAILED}
"""States in which automations, workers or a second process may put the flow run of a living
process."""
CANCELLED_WITHIN_S = 30.0
"""Time within which a worker tells the process of a run that it is cancelled. It asks each 10 s."""
BY_PREFECT = "Deployment "
"""How the message begins when Prefect itself cancels a flow run: another one has its deployment's
slot, or the deployment is gone. A run that the server believed dead may be alive then."""


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
        self._away_since: float | None = None
        self._lost = False
        self.forgotten = False
        """Whether the server answers that it does not know this flow run."""

    @property
    def away(self) -> bool:
        """Whether the server did not answer when it was last asked."""
        return self._away_since is not None

    @property
    def lost(self) -> bool:
        """Whether the server is gone for good."""
        return self._lost

    def check(self) -> None:
        """Raise `ServerError` if the server is gone for good."""
        if self._lost:
            raise ServerError(
                f"the Prefect server at {self._client.api_url} has not answered for "
                f"{self._seconds_away():.0f} s (logging.server_timeout_s is "
                f"{self._patience_s:g})"
            )

    async def back(self) -> None:
        """Return when the server answers. Raises `ServerError` if it is gone for good."""
        while self.away:
            self.check()
            await asyncio.sleep(POLL_S / 10)

    async def watch(self) -> None:
        """Ask the server every two seconds whether it is there; to be run in a task of its own."""
        # A request that is retried would hide a server that was away for a moment.
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            while not self._lost:
                await asyncio.sleep(POLL_S)
                self._note(answers=await self._answers())
                self._lost = self._seconds_away() > self._patience_s
        self._stop_retrying()

    def let_go(self) -> None:
        """Send events again to a server that did not know this flow run. If the server is gone for
        good, drop what the run has sent since then about its end."""
        self._mute(False)
        if self._lost:
            self._stop_retrying()

    async def _answers(self) -> bool:
        """Return whether the server answers. If it does, also tell it that this run is alive."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if await self._client.api_healthcheck() is not None:
                    return False
                await self._stay_running()
        except UNANSWERED:
            return False
        return True

    async def _stay_running(self) -> None:
        """Set the flow run back to Running if the server gave it up, unless cancelled."""
        try:
            flow_run = await self._client.read_flow_run(self._flow_run_id)
        except ObjectNotFound:
            self._note_forgotten()
            return
        if self.forgotten:
            get_run_logger().warning("the server knows this flow run again, and is told of it")
            self._mute(False)
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
            self._mute(True)
            get_run_logger().warning(
                "the server does not know this flow run any more: somebody has deleted it, or the "
                "server's database. The run goes on, but Prefect's pages do not show it, and "
                "another run may begin beside it; `mortal stop` ends it"
            )

    def _mute(self, muted: bool) -> None:
        self.forgotten = muted
        EventsWorker.set_client_override(NullEventsClient if muted else None)

    def _is_cancelled(self, state: State[Any], *, has_worker: bool) -> bool:
        """Return whether the flow run is cancelled, and no worker has told this process so far."""
        if state.type == StateType.CANCELLED:
            return not (state.message or "").startswith(BY_PREFECT)
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
        elif not answers and not self.away:
            say("%s does not answer; continuing without it for up to %g s", url, self._patience_s)
            self._away_since = time.monotonic()

    def _seconds_away(self) -> float:
        return 0.0 if self._away_since is None else time.monotonic() - self._away_since

    def _stop_retrying(self) -> None:
        """Let this process end soon: there is no server to report to."""
        drop_events()
        get_current_settings().client.max_retries = 0


@contextlib.asynccontextmanager
async def watch_server(
    patience_s: float, on_cancelled: Callable[[str], None] = lambda reason: None
) -> AsyncIterator[ServerWatch]:
    """Watch the server of this flow run for the time of the block.

    `on_cancelled` is given a reason to stop when the flow run is cancelled and no worker tells this
    process.

    `check()` before each step, and `back()` at the end, raise a `ServerError` once it has not
    answered for `patience_s` seconds.
    """
    keep_slot()
    async with get_client() as client:
        watch = ServerWatch(client, UUID(flow_run.id), patience_s, on_cancelled)
        task = asyncio.create_task(watch.watch())
        try:
            yield watch
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            watch.let_go()
