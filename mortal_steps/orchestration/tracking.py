"""The trackers of a run: a process for each follows what the run commits.

The flow only starts these processes and receives their messages; no step waits for a tracker. A
tracker that fails is started again, after a longer time with each failure, and continues where its
own record ends.
"""

import asyncio
import contextlib
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import parse_config
from mortal_steps.report.trackers.table import TRACKERS
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.lease import is_driven
from mortal_steps.runs.notices import new_notice, note
from mortal_steps.runs.run import Run
from mortal_steps.store.files import writing
from mortal_steps.system.child import Child
from mortal_steps.system.retry import backoff

logger = logging.getLogger(__name__)

FOLLOW = "mortal_steps.report.trackers.follow"
LOOK_EVERY_S = 1.0
ENDS_WITHIN_S = 60.0
"""Seconds that a tracker's process may take to catch up after the end of this process."""
DRAIN_S = 30.0
"""Seconds that a run which has ended waits for its trackers."""
AGAIN_AFTER_S = 10.0
"""Seconds until a tracker that failed is started again; doubled with each failure in a row."""
AGAIN_AT_LEAST_EVERY_S = 600.0
"""The longest such time, in seconds."""


class Follower:
    """The process of one tracker, as seen from the event loop in which it was started."""

    def __init__(self, run: Run, name: str) -> None:
        self.name = name
        self._run = run
        self.step = -1
        """Last step that the tracker is known to have."""
        self.error = ""
        """What ended the process; empty while it lives, and where it ended in order."""
        self._writer: asyncio.StreamWriter | None = None
        self._ending = False

    async def follow(self) -> None:
        """Start the process and listen until it ends; cancelled, it is killed."""
        self.error = "it did not finish in time"
        channel, theirs = socket.socketpair()
        with theirs:
            reader, self._writer = await asyncio.open_connection(sock=channel)
            try:
                process = self._start(theirs)
            except BaseException:
                self._writer.close()
                raise
        try:
            self._writer.write(self._run.config.model_dump_json().encode() + b"\n")
            if self._ending:
                self.end()
            await self._listen(reader)
            await asyncio.to_thread(process.wait)
        finally:
            self._writer.close()
            process.kill_all()

    def end(self) -> None:
        """Let the process finish with what is committed by now."""
        self._ending = True
        if self._writer is not None and not self._writer.is_closing():
            with contextlib.suppress(OSError):  # it has ended already
                self._writer.write_eof()

    @property
    def log(self) -> Path:
        return self._run.store.path(f"logs/tracker-{self.name.replace(':', '.')}.log").absolute()

    def _start(self, channel: socket.socket) -> Child:
        with writing(self.log):
            self.log.parent.mkdir(parents=True, exist_ok=True)
            log = self.log.open("ab")
        with log:
            root, number = str(self._run.store.root.absolute()), str(channel.fileno())
            return Child(
                # -P: files of the working folder hide nothing installed
                [sys.executable, "-P", "-m", FOLLOW, root, self.name, number],
                output=log,
                pass_fds=[channel.fileno()],
                cwd=self._run.working_dir(),
                grace_s=ENDS_WITHIN_S,
            )

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        error = f"its process ended by itself; see {self.log}"
        with contextlib.suppress(ConnectionError):
            while line := await reader.readline():
                message = json.loads(line)
                self.step = message.get("step", self.step)
                error = message.get("error", error)
                if message.get("closed"):
                    error = ""
        self.error = error


class Tracking:
    """The trackers of a run, while this process drives it."""

    def __init__(self, run: Run, on_notice: Callable[[], None]) -> None:
        self._run = run
        self._on_notice = on_notice
        self._ending = asyncio.Event()
        self._followers = [Follower(run, name) for name in run.config.logging.report_to]
        self._tasks = [asyncio.create_task(self._keep(each)) for each in self._followers]

    async def finish(self) -> None:
        """Let every tracker catch up, for at most `DRAIN_S`, and report which of them did not."""
        self._ending.set()
        for follower in self._followers:
            follower.end()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DRAIN_S)
        await self.cancel()
        named, step = run_argument(self._run.store.root), self._run.manifest.step
        for follower in self._followers:
            behind = step - max(0, follower.step)
            lacks = f"lacks {behind} of {step}" if behind else "may lack the last"
            if follower.error:
                self._note(
                    follower,
                    "mortal.tracker.behind",
                    f"the tracker {follower.name} {lacks} steps: {follower.error}",
                    f"bring them to it with `mortal track {named} --to {follower.name}`",
                )

    async def cancel(self) -> None:
        """Kill the processes; `mortal track` sends later what is not sent yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep(self, follower: Follower) -> None:
        delays_s, failures = backoff(AGAIN_AFTER_S, AGAIN_AT_LEAST_EVERY_S), 0
        while True:
            before = follower.step
            try:
                await follower.follow()
            except (OSError, ValueError) as error:  # not started, or no answer of ours
                follower.error = str(error)
            if follower.step > before:
                delays_s, failures = backoff(AGAIN_AFTER_S, AGAIN_AT_LEAST_EVERY_S), 0
            if self._ending.is_set():
                return
            failures += 1
            if failures == 1:
                self._note(
                    follower,
                    "mortal.tracker.failed",
                    f"the tracker {follower.name} failed: {follower.error}",
                    "the run goes on, and the tracker is started again; what it has missed is "
                    "brought to it then",
                )
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), next(delays_s))

    def _note(self, follower: Follower, event: str, text: str, advice: str) -> None:
        step = self._run.manifest.step
        logger.warning("%s. What to do: %s", text, advice)
        notice = new_notice(
            self._run,
            event,
            "warning",
            text,
            step=step,
            advice=advice,
            which=f"{follower.name}/{step}",
        )
        if note(self._run, notice):
            self._on_notice()


@contextlib.asynccontextmanager
async def tracked(run: Run, on_notice: Callable[[], None]) -> AsyncIterator[None]:
    """Let the trackers follow the run inside the block, and catch up at its end unless it is
    interrupted. `on_notice` is called with news about notices."""
    tracking = Tracking(run, on_notice)
    try:
        yield
    except (KeyboardInterrupt, asyncio.CancelledError):
        await tracking.cancel()
        raise
    except BaseException:
        await tracking.finish()
        raise
    await tracking.finish()


def with_logging(run: Run, **changes: Any) -> Run:
    """Return the run with other values in `[logging]`; raises `ConfigError`."""
    values = run.config.model_dump(mode="json")
    config = parse_config({**values, "logging": values["logging"] | changes})
    return Run(run.store, config, run.info)


async def catch_up(run: Run, *, follows: bool) -> list[Follower]:
    """Send all that is committed to the run's trackers, with `follows` for as long as it is driven;
    return what came of each."""
    followers = [Follower(run, name) for name in run.config.logging.report_to]
    following = asyncio.gather(*(follower.follow() for follower in followers))
    while follows and is_driven(run.store) and not following.done():
        await asyncio.sleep(LOOK_EVERY_S)
    for follower in followers:
        follower.end()
    await following
    return followers


def check_trackers(names: Iterable[str], source: str = "logging.report_to") -> None:
    """Raise `ConfigError` for a tracker that is unknown or not installed, named by `source`."""
    for name in names:
        try:
            TRACKERS.check(name)
        except ValueError as error:
            raise ConfigError(f"{source}: {error}") from None
        kind = TRACKERS.entry(name)
        if name not in TRACKERS:
            TRACKERS.load(name)
        elif kind.needs and find_spec(kind.needs) is None:
            raise ConfigError(
                f"{source} names {name!r}, but {sys.executable} has no {kind.needs}; "
                f"`{kind.install}`, or leave it out"
            )
