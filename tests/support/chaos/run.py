"""One run under fire: started, shot at, resumed where its flow died, until it is complete."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.support.chaos.aim import is_awaited, place, shows_work, usual_name
from tests.support.chaos.game_server import GameServer
from tests.support.chaos.processes import FlowProcess, kill
from tests.support.chaos.schedule import (
    GAME,
    LAST,
    STARTING,
    WORKERS,
    Moment,
    Shot,
    Volley,
    is_last,
)
from tests.support.chaos.server import KillableServer
from tests.support.chaos.worker_logs import Event, LogFollower, Picture

LOOK_EVERY_S = 0.002
STUCK_AFTER_S = 150.0
"""Without a line in any worker's log. The longest that a run waits by itself is 15 s."""
MAX_STARTS_UNSHOT = 5
"""Starts in a row that end by themselves before the run counts as broken."""
UNKNOWN_STAGE_S = 0.05


class Killable(Protocol):
    """A victim that no process of the flow's is, and that comes back by itself."""

    @property
    def away(self) -> bool: ...

    def kill(self) -> None: ...

    def come_back(self) -> None: ...

    def wait(self) -> None: ...


class ChaosError(Exception):
    """A run that hangs or cannot be resumed."""


@dataclass(kw_only=True, slots=True)
class Kill:
    """A process that was killed, and what came of it."""

    run_id: str
    victim: str
    stage: str
    """Where the run was, as the workers' logs tell."""
    inside: bool
    """False: between the end of that stage and whatever came next."""
    at: float
    """Seconds since the epoch."""
    recovery_s: float | None = None
    """Until a process of its role had done a stage; None where none was left to do."""


@dataclass(kw_only=True, slots=True)
class RunOutcome:
    """How a run went."""

    run_id: str
    kills: list[Kill] = field(default_factory=list)
    begun: int = 0
    """Times that `mortal train` was called, for as long as there was no run."""
    resumed: int = 0
    """Times that `mortal resume` went on with it."""
    gave_up: list[str] = field(default_factory=list)
    """Errors with which the flow ended by itself."""
    seconds: float = 0.0


class ChaosRun:
    """`volleys` are used up from the left; those that a run is too short for stay."""

    def __init__(
        self,
        *,
        folder: Path,
        run_id: str,
        settings: Sequence[str],
        server: KillableServer,
        game: GameServer,
        usual: Mapping[str, float],
        volleys: deque[Volley],
        say: Callable[[str], None],
        others: Mapping[str, Killable],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._server = server
        self._servers: Mapping[str, Killable] = {"server": server, GAME: game, **others}
        self._usual = usual
        self._say = say
        self._volleys = volleys
        self._current: deque[Shot] = deque()
        self._due: float | None = None
        self._picture = Picture()
        self._run_dir = folder / "runs" / run_id
        self._logs = LogFollower(self._run_dir / "logs")
        self._outcome = RunOutcome(run_id=run_id)
        self._recovering: list[Kill] = []
        self._ended_unshot = 0

    def run(self) -> RunOutcome:
        """Drive it to its end. Raises `ChaosError` if it does not get there."""
        began = time.monotonic()
        self._flow = self._start()
        try:
            while self._flow.code != 0:
                self._look()
                if self._flow.code not in (None, 0):
                    self._resume()
                time.sleep(LOOK_EVERY_S)
        finally:
            self._logs.close()
            if self._flow.code is None:
                self._flow.kill()
        for each in self._servers.values():
            each.wait()
        if self._current:
            self._volleys.append(tuple(self._current))
        self._outcome.seconds = time.monotonic() - began
        return self._outcome

    def _start(self) -> FlowProcess:
        """`mortal resume`, or `mortal train` while there is no run yet."""
        self._heard = time.monotonic()
        run_id = self._outcome.run_id
        arguments = ["resume", run_id]
        if not (self._run_dir / "run.json").exists():
            settings = [part for setting in self._settings for part in ("--set", setting)]
            arguments = ["train", "chaos.toml", "--run-id", run_id, *settings]
            self._outcome.begun += 1
        output = self._folder / f"{run_id}.out"
        return FlowProcess(self._folder, output, self._server.api_url, *arguments)

    def _look(self) -> None:
        """Take in what is new, and shoot if it is time."""
        events = self._logs.new_events()
        if events:
            self._heard = time.monotonic()
            self._picture.add(events)
            self._note_recoveries(events)
        elif time.monotonic() - self._heard > STUCK_AFTER_S:
            raise ChaosError(
                f"run {self._outcome.run_id} does nothing for {STUCK_AFTER_S:g} s; last "
                f"{self._picture.newest}; its output ends:\n{self._flow.output()[-3000:]}"
            )
        self._choose(events)
        if self._current:
            self._aim(self._current[0], events)
            if self._due is not None and time.time() >= self._due:
                self._fire(self._current[0])

    def _choose(self, events: Sequence[Event]) -> None:
        """The next volley, once the run has recovered from the last one."""
        begins = any((event.kind, event.name) == ("begins", LAST) for event in events)
        if begins and self._current and not is_last(tuple(self._current)):
            self._volleys.append(tuple(self._current))  # for another run: this one is at its end
            self._current.clear()
            self._due = None
        if self._current or (self._recovering and not self._is_ending()):
            return
        for volley in self._volleys:
            if self._is_possible(volley):
                self._volleys.remove(volley)
                self._current.extend(volley)
                return

    def _is_possible(self, volley: Volley) -> bool:
        victims = {victim for shot in volley for victim in shot.victims}
        if any(each.away for name, each in self._servers.items() if name in victims):
            return False
        if not is_last(volley):
            return not self._is_ending()
        return self._is_ending(volley[0].moment)

    def _aim(self, shot: Shot, events: Sequence[Event]) -> None:
        """Decide when to fire, if what the shot waits for has just happened."""
        if self._due is not None:
            return
        if shot.starter in ("flow", "server"):
            self._due = time.time() + shot.fraction * self._usual["flow"]
            return
        if shot.stage == LAST:
            if self._is_ending(shot.moment):
                self._due = time.time() + shot.fraction * self._usual[LAST] / 2
            return
        for event in events:
            if is_awaited(event, shot):
                usual = self._usual.get(usual_name(shot), UNKNOWN_STAGE_S)
                self._due = time.time() + shot.fraction * usual
                return

    def _is_ending(self, moment: Moment | None = None) -> bool:
        """Whether the run is inside its last stage or after it, or either; it may come to it again
        if the actor or the flow is killed there."""
        newest = self._picture.newest
        if newest is None or newest.name != LAST:
            return False
        inside = newest.kind == "begins" and self._picture.stage_of("actor-0") is not None
        return moment is None or (inside if moment == "inside" else newest.kind == "ends")

    def _fire(self, shot: Shot) -> None:
        names = [name for name in shot.victims if name not in self._servers]
        targets = {name: self._flow.process_ids(name) for name in names}
        if not all(targets.values()):
            if shot.stage != STARTING:
                self._due = None  # one of them is not there: wait for the next time
            return
        self._current.popleft()
        self._due = None
        for name in shot.victims:
            at = time.time()
            if name in self._servers:
                self._servers[name].kill()
                self._servers[name].come_back()
                hit = True
            else:
                hit = self._flow.kill() if name == "flow" else kill(targets[name][0])
            if hit:
                self._note(name, shot, at)

    def _note(self, victim: str, shot: Shot, at: float) -> None:
        """Where it was hit: what the logs say until the moment of the kill."""
        events = self._logs.new_events()
        before = [event for event in events if event.worker == victim or event.at <= at + 0.001]
        self._picture.add(before)
        self._note_recoveries(events)
        stage, inside = place(self._picture, victim, shot, at)
        one = Kill(run_id=self._outcome.run_id, victim=victim, stage=stage, inside=inside, at=at)
        self._outcome.kills.append(one)
        self._recovering.append(one)
        for worker in WORKERS if victim == "flow" else (victim,):
            self._picture.forget(worker)
        self._picture.add(event for event in events if event not in before)
        self._say(f"{victim:10} {'inside' if inside else 'after':6} {stage}")

    def _note_recoveries(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == "ends" and event.name not in ("start", "warm_start"):
                self._ended_unshot = 0
                for one in list(self._recovering):
                    if event.at >= one.at and shows_work(event, one.victim):
                        one.recovery_s = event.at - one.at
                        self._recovering.remove(one)

    def _resume(self) -> None:
        """Go on as a user would; an error of the flow's own is noted."""
        if self._flow.code != -9:
            output = self._flow.output()
            error = output[output.rfind("error: ") :].strip()
            self._outcome.gave_up.append(error[:500])
            self._say(f"flow ended by itself: {error[:300]}")
            if "error: " not in output or "Traceback" in error:
                raise ChaosError(f"the flow of {self._outcome.run_id} ended unclearly:\n{output}")
            self._ended_unshot += 1
            if self._ended_unshot > MAX_STARTS_UNSHOT:
                raise ChaosError(f"run {self._outcome.run_id} cannot be resumed:\n{output[-3000:]}")
            self._server.wait()
        self._picture = Picture()
        self._due = None
        self._outcome.resumed += 1
        self._flow = self._start()
