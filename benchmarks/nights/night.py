"""One night: wait until the scheduler fires it, let its faults come, see it to its end."""

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from benchmarks.nights.cluster import Cluster
from benchmarks.nights.inflict import NoTargetError, inflict
from benchmarks.nights.plan import NightPlan, Planned
from benchmarks.nights.project import NAME
from benchmarks.output import say
from mortal_steps.errors import RunNotFoundError, StoreError
from mortal_steps.runs.logs import EVALUATIONS, METRICS
from mortal_steps.runs.run import Run, find_run

LOOK_EVERY_S = 0.1
ASK_EVERY_S = 1.0
STUCK_AFTER_S = 300.0
"""Without a step or another state of the flow run."""
ENDED = ("COMPLETED", "FAILED", "CANCELLED")
FELL_TO = {"collapse": 0.5, "regression": 0.7}
"""A planted change shows when a reward is below this part of the night's best."""


@dataclass(kw_only=True, slots=True)
class Struck:
    """A fault that has come."""

    fault: str
    step: int
    """Train steps that were done."""
    at: float
    """Seconds since the epoch."""
    lasted_s: float
    recovery_s: float | None = None
    """From its beginning to the end of the next train step."""


@dataclass(kw_only=True, slots=True)
class Night:
    """How a night went."""

    plan: NightPlan
    flow_run_id: str
    run_id: str
    due: str
    """When the schedule wanted it."""
    state: str = ""
    starts: int = 0
    """How often its flow run was Running."""
    began: float
    seconds: float = 0.0
    struck: list[Struck] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    """Faults that found nothing to hit, or came too late."""
    visible_at: float | None = None
    """When what was planted could be seen in the run's own numbers."""
    database_mb: float = 0.0


def next_night(cluster: Cluster, deployment: str, since: float, plan: NightPlan) -> Night:
    """Return the deployment's next flow run that begins after `since`, seconds since the epoch."""
    while True:
        for each in flow_runs(cluster, deployment):
            if each["run_count"] and _seconds(each["start_time"]) > since:
                run_id = f"{NAME}-{UUID(each['id']).hex[-12:]}"
                due = each["expected_start_time"]
                began = time.time()
                return Night(plan=plan, flow_run_id=each["id"], run_id=run_id, due=due, began=began)
        time.sleep(ASK_EVERY_S)


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def flow_runs(cluster: Cluster, deployment: str) -> list[Mapping[str, Any]]:
    """Those of a deployment that are due or were, the first one first."""
    wanted = {"deployments": {"id": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_ASC"}
    found: list[Mapping[str, Any]] = cluster.ask("POST", "/flow_runs/filter", wanted)
    return found


class Watch:
    """Sees a night to its end."""

    def __init__(self, cluster: Cluster, night: Night) -> None:
        self._cluster = cluster
        self._night = night
        self._left = deque(night.plan.faults)
        self._step = 0
        self._moved = time.monotonic()
        self._asked = 0.0

    def to_its_end(self) -> Night:
        """Strike as planned until the flow run has ended. Raises `RuntimeError` if it hangs."""
        night = self._night
        while night.state not in ENDED:
            time.sleep(LOOK_EVERY_S)
            self._look()
            if self._left and self._step >= self._left[0].step and not self._recovering():
                self._strike(self._left.popleft())
            if time.monotonic() - self._asked > ASK_EVERY_S:
                self._ask()
            if time.monotonic() - self._moved > STUCK_AFTER_S:
                raise RuntimeError(
                    f"night {night.plan.number} ({night.run_id}) is {night.state} at step "
                    f"{self._step} for {STUCK_AFTER_S:g} s"
                )
        night.seconds = time.time() - night.began
        night.missed += [each.fault for each in self._left]
        night.database_mb = self._cluster.database_mb()
        return night

    def _look(self) -> None:
        """Take in what the run's files say."""
        run = self._run()
        if run is None:
            return
        step = run.manifest.step
        if step != self._step:
            self._step, self._moved = step, time.monotonic()
            for struck in self._night.struck:
                if struck.recovery_s is None and step > struck.step:
                    struck.recovery_s = time.time() - struck.at
        if self._night.plan.kind != "good" and self._night.visible_at is None:
            self._look_for_what_was_planted(run)

    def _look_for_what_was_planted(self, run: Run) -> None:
        kind = self._night.plan.kind
        log = METRICS if kind == "collapse" else EVALUATIONS
        best = 0.0
        for row in run.logs.read(log):
            if row["reward"] < FELL_TO[kind] * best:
                self._night.visible_at = time.time()
                say(f"  what was planted shows: reward {row['reward']:.3f}")
                return
            best = max(best, row["reward"])

    def _run(self) -> Run | None:
        try:
            return find_run(self._cluster.runs, self._night.run_id)
        except (RunNotFoundError, StoreError):
            return None  # not begun, or in the middle of a full disk

    def _recovering(self) -> bool:
        return any(struck.recovery_s is None for struck in self._night.struck)

    def _strike(self, planned: Planned) -> None:
        night, at, step = self._night, time.time(), self._step
        say(f"  step {step}: {planned.fault}")
        try:
            inflict(self._cluster, self._cluster.runs / night.run_id, planned.fault)
        except NoTargetError as error:
            say(f"  {error}")
            night.missed.append(planned.fault)
            return
        lasted = time.time() - at
        night.struck.append(Struck(fault=planned.fault, step=step, at=at, lasted_s=lasted))

    def _ask(self) -> None:
        """Ask the server how the flow run is."""
        self._asked = time.monotonic()
        found = self._cluster.ask("GET", f"/flow_runs/{self._night.flow_run_id}")
        state = found["state"]["type"]
        if state != self._night.state:
            self._moved = time.monotonic()
            say(f"  {found['state']['name']}: {(found['state']['message'] or '')[:150]}")
        self._night.state, self._night.starts = state, found["run_count"]
