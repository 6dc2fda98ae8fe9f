"""One run under fire: started, shot at, resumed where its flow died, until it is complete."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.processes import FlowProcess, kill, wait_until_gone
from benchmarks.chaos.schedule import (
    LAST,
    STARTING,
    WORKERS,
    Moment,
    Shot,
    Volley,
    is_at_server,
    is_last,
)
from benchmarks.chaos.server import KillableServer
from benchmarks.chaos.worker_logs import Event, LogFollower, Picture

LOOK_EVERY_S = 0.002
STUCK_AFTER_S = 150.0
"""Without a line in any worker's log. The longest that a run waits by itself is 15 s."""
MAX_STARTS_UNSHOT = 5
"""Starts in a row that end by themselves before the run counts as broken."""
BOUNDARY_S = 0.02
"""A kill so soon after the end of a stage is one at its end, whatever else has begun."""
UNKNOWN_STAGE_S = 0.05

ROLE_STAGES = {
    "actor-0": ("start_workers", "train_step", "checkpoint", "save_final"),
    "rollout-0": ("generate", "evaluate"),
    "rollout-1": ("generate", "evaluate"),
    "reward-0": ("reward", "evaluate"),
    "host": ("reward", "evaluate"),
}
"""Stages whose end shows that a process does its work again; of others, any stage shows it."""


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
        usual: Mapping[str, float],
        volleys: deque[Volley],
        say: Callable[[str], None],
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._server = server
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
        train = ("train", "chaos.toml", "--run-id", self._outcome.run_id)
        self._flow = self._start(*train, *(part for s in self._settings for part in ("--set", s)))
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
        self._server.wait()
        if self._current:
            self._volleys.append(tuple(self._current))
        self._outcome.seconds = time.monotonic() - began
        return self._outcome

    def _start(self, *arguments: str) -> FlowProcess:
        self._heard = time.monotonic()
        output = self._folder / f"{self._outcome.run_id}.out"
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
        if self._server.away and is_at_server(volley):
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
            if _is_awaited(event, shot):
                usual = self._usual.get(_usual_name(shot), UNKNOWN_STAGE_S)
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
        targets = {name: self._flow.process_ids(name) for name in shot.victims if name != "server"}
        if not all(targets.values()):
            if shot.stage != STARTING:
                self._due = None  # one of them is not there: wait for the next time
            return
        self._current.popleft()
        self._due = None
        for name in shot.victims:
            at = time.time()
            if name == "server":
                self._server.kill()
            elif name == "flow":
                workers = [pid for worker in WORKERS for pid in self._flow.process_ids(worker)]
                self._flow.kill()
                for pid in workers:
                    wait_until_gone(pid)
            else:
                kill(targets[name][0])
            self._note(name, shot, at)
        if "server" in shot.victims:
            self._server.come_back()

    def _note(self, victim: str, shot: Shot, at: float) -> None:
        """Where it was hit: what the logs say until the moment of the kill."""
        events = self._logs.new_events()
        before = [event for event in events if event.worker == victim or event.at <= at + 0.001]
        self._picture.add(before)
        self._note_recoveries(events)
        stage, inside = _place(self._picture, victim, shot, at)
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
                for one in [one for one in self._recovering if _shows(event, one)]:
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
        if (self._run_dir / "run.json").exists():
            self._flow = self._start("resume", self._outcome.run_id)
        else:  # killed before there was a run
            train = ("train", "chaos.toml", "--run-id", self._outcome.run_id)
            self._flow = self._start(*train, *(p for s in self._settings for p in ("--set", s)))


def _is_awaited(event: Event, shot: Shot) -> bool:
    """Whether the event is what the shot waits for: of the victim's own where it has such."""
    if shot.stage == STARTING:
        if shot.starter == "host":
            return event.kind == "host started"
        return (event.kind, event.worker) == ("started", shot.starter)
    victim = shot.victims[0]
    worker = "reward-0" if victim == "host" else victim
    kind = "begins" if shot.moment == "inside" else "ends"
    own = shot.stage in ROLE_STAGES.get(worker, ()) or (
        shot.stage == "sync_weights" and worker.startswith("rollout")
    )
    if shot.stage == "start_workers":
        own = False
    return (event.kind, event.name) == (kind, shot.stage) and (not own or event.worker == worker)


def _usual_name(shot: Shot) -> str:
    """Under which name the usual duration is known of what the shot interrupts."""
    if shot.stage != STARTING:
        return shot.stage
    role = shot.starter.partition("-")[0]
    return {"actor": "start_workers", "rollout": "start"}.get(role, "reward")


def _place(picture: Picture, victim: str, shot: Shot, at: float) -> tuple[str, bool]:
    """The stage that a kill hit, and whether inside it."""
    newest = picture.newest
    own = picture.stage_of("reward-0" if victim == "host" else victim)
    if own is not None:
        return own, True
    stages = picture.stages()
    at_an_end = newest is not None and newest.kind == "ends"
    if newest and at_an_end and (not stages or at - newest.at < BOUNDARY_S):
        return newest.name, False
    if not stages:
        return STARTING, True
    return (shot.stage if shot.stage in stages else stages[0]), True


def _shows(event: Event, one: Kill) -> bool:
    """Whether the event is work of the role that was killed."""
    if one.victim in ROLE_STAGES:
        done = event.name in ROLE_STAGES[one.victim]
    else:
        done = event.name != "start_workers"
    return done and event.at >= one.at
