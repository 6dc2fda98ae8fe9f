"""The Prefect server may go away in mid-run and come back.

Training needs no server: task runs are told by events, which wait in memory while it is away. A run
goes on without it for `logging.server_patience_s`, as long as what waits is less than the server
can take in at once, and its history is whole in the end. After that it ends as if interrupted.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

import httpx
from prefect.client.orchestration import PrefectClient, get_client
from prefect.exceptions import PrefectHTTPStatusError
from prefect.logging import get_run_logger
from prefect.settings import (
    PREFECT_CLIENT_MAX_RETRIES,
    get_current_settings,
    temporary_settings,
)

from mortal_steps.errors import ServerError
from tasks.history import History, history

POLL_S = 2.0
ANSWER_TIMEOUT_S = 5.0
MAX_UNRECORDED = 2000
"""Task runs, of three events each: a server that comes back drops events beyond 10,000."""


class ServerWatch:
    """Whether the server answers, and since when it does not."""

    def __init__(self, client: PrefectClient, patience_s: float) -> None:
        self._client = client
        self._patience_s = patience_s
        self._history = History()
        self._away_since: float | None = None
        self._lost = False
        self._changed = asyncio.Event()

    @property
    def away(self) -> bool:
        """Whether the server did not answer when it was last asked."""
        return self._away_since is not None

    async def ready(self) -> None:
        """Return when the run may take another step. Raises `ServerError`: gone for good."""
        while self.away and not self._lost and len(self._history) > MAX_UNRECORDED:
            await self._change()
        self._raise_if_lost()

    async def back(self) -> None:
        """Return when the server answers, at once if it does. Raises `ServerError`."""
        while self.away and not self._lost:
            await self._change()
        self._raise_if_lost()

    async def watch(self) -> None:
        """Ask the server every two seconds; for a task of its own."""
        # A request that is retried would hide a server that was away for a moment.
        with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}):
            while not self._lost:
                await asyncio.sleep(POLL_S)
                self._note(answers=await self._answers())
                self._lost = self._seconds_away() > self._patience_s
                self._changed.set()
        self._stop_retrying()

    @property
    def kept(self) -> History:
        """What the server may not have written down."""
        return self._history

    async def _answers(self) -> bool:
        """Also forgets what the server has written down, which it was asked for."""
        try:
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                if await self._client.api_healthcheck() is not None:
                    return False
                await self._history.forget_recorded(self._client)
        except (TimeoutError, httpx.HTTPError, PrefectHTTPStatusError):
            return False
        return True

    def _note(self, *, answers: bool) -> None:
        url, say = self._client.api_url, get_run_logger().warning
        if answers and self.away:
            say("%s answers again after %.0f s", url, self._seconds_away())
            self._away_since = None
            self._history.tell_again()
        elif not answers and not self.away:
            say("%s does not answer; going on without it for %g s", url, self._patience_s)
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
                f"{self._seconds_away():.0f} s (logging.server_patience_s is "
                f"{self._patience_s:g})"
            )

    def _stop_retrying(self) -> None:
        """Let this process end soon: it has nobody to report to any more."""
        self._history.give_up()
        get_current_settings().client.max_retries = 0


@contextlib.asynccontextmanager
async def watch_server(patience_s: float) -> AsyncIterator[ServerWatch]:
    """Watch the server of this flow run for the time of the block.

    `ready()` before each step and `back()` at the end raise a `ServerError` once it has not
    answered for `patience_s` seconds.
    """
    async with get_client() as client:
        watch = ServerWatch(client, patience_s)
        token = history.set(watch.kept)
        task = asyncio.create_task(watch.watch())
        try:
            yield watch
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
            history.reset(token)
