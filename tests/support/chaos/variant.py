"""One variant: a run that nothing happens to, and runs under fire that must equal it."""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.chaos.agents import write_agents
from tests.support.chaos.comparison import Digests, Work, digests, work_of
from tests.support.chaos.game_server import GameServer
from tests.support.chaos.project import AGENTS, ROWS, SELECTIONS, SERVED, VARIANTS, write_project
from tests.support.chaos.rows import faults_of_rows, write_rows
from tests.support.chaos.run import ChaosError, ChaosRun, Killable, RunOutcome
from tests.support.chaos.schedule import Volley
from tests.support.chaos.server import KillableServer
from tests.support.chaos.worker_logs import durations, read_events

MOST_IN_VAIN = 3
"""Runs in which nothing is hit: a worker is forked so quickly that a shot at its start may miss."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A run under fire, compared."""

    outcome: RunOutcome
    work: Work
    faults: tuple[str, ...]
    """What differs from the run that nothing happened to, or was lost; empty if nothing."""


class Variant:
    """Runs of one variant in a folder of their own."""

    def __init__(
        self,
        name: str,
        folder: Path,
        server: KillableServer,
        steps: int,
        say: Callable[[str], None],
        *,
        settings: Sequence[str] = (),
        others: Mapping[str, Killable] | None = None,
    ) -> None:
        """`settings` are those of the runs under fire alone, `others` what else can be killed."""
        self.name = name
        self.folder = folder / name
        self.settings = (
            *{**VARIANTS, **AGENTS, **ROWS, **SELECTIONS}[name],
            f"training.max_steps={steps}",
        )
        self._server = server
        self._steps = steps
        self._say = say
        self._fired_at, self._others = settings, others or {}
        self._usual: Mapping[str, float] = {}
        self.folder.mkdir()
        self._game = GameServer(self.folder)
        if name in AGENTS:
            write_agents(self.folder, name, self._game.address)
        elif name in ROWS:
            write_rows(self.folder, name)
        else:
            write_project(self.folder, name)

    @contextlib.contextmanager
    def game(self) -> Iterator[None]:
        """Have the server of the game run, if there is one, for the time of the block."""
        if self.name in SERVED:
            self._game.start()
        try:
            yield
        finally:
            self._game.wait()
            self._game.kill()

    def reference(self) -> None:
        """The run that nothing happens to; tells how long each stage takes as a rule."""
        whole = self._run("whole", deque())
        events = read_events(self._run_dir("whole") / "logs")
        start_s = whole.seconds - (events[-1].at - events[0].at)
        self.expect("whole", {**durations(events), "flow": start_s / 2})

    def expect(self, run_id: str, usual: Mapping[str, float]) -> None:
        """Compare with this run from now on; `usual` gives the seconds that each stage takes, and
        under `flow` those that the flow takes to start its first worker."""
        self._usual = usual
        self._expected = digests(self._run_dir(run_id), self._steps)

    def under_fire(self, volleys: Iterable[Volley]) -> Iterator[Judged]:
        """Runs until every volley is fired. Raises `ChaosError` for one that cannot be."""
        left, in_vain = deque(volleys), 0
        for number in itertools.count(1):
            if not left:
                return
            outcome = self._run(f"killed-{number}", left)
            in_vain = 0 if outcome.kills else in_vain + 1
            if in_vain == MOST_IN_VAIN:
                raise ChaosError(f"what these wait for never happens: {list(left)}")
            yield self._judged(outcome)

    def _run(self, run_id: str, volleys: deque[Volley]) -> RunOutcome:
        self._say(f"{self.name}: run {run_id}, {len(volleys)} volleys left")
        return ChaosRun(
            folder=self.folder,
            run_id=run_id,
            settings=(*self.settings, *(self._fired_at if volleys else ())),
            server=self._server,
            game=self._game,
            usual=self._usual,
            volleys=volleys,
            say=self._say,
            others=self._others,
        ).run()

    def _judged(self, outcome: RunOutcome) -> Judged:
        run_dir = self._run_dir(outcome.run_id)
        training = find_run(run_dir.parent, outcome.run_id).config.training
        events = read_events(run_dir / "logs")
        work = work_of(run_dir, events, self._steps, training.optimizer_steps_per_batch)
        found = digests(run_dir, self._steps)
        faults = (*_differences(self._expected, found), *_losses(work), *_damage(run_dir))
        if self.name in ROWS:
            output = self.folder / f"{outcome.run_id}.out"
            faults = (*faults, *faults_of_rows(run_dir, output, outcome.begun))
        return Judged(outcome=outcome, work=work, faults=faults)

    def _run_dir(self, run_id: str) -> Path:
        return self.folder / "runs" / run_id


def _differences(expected: Digests, found: Digests) -> Sequence[str]:
    return [
        f"{name}: {found[name][:12]}, expected {digest[:12]}"
        for name, digest in expected.items()
        if found[name] != digest
    ]


def _damage(run_dir: Path) -> Iterator[str]:
    """Files that do not match their digest, and what is half written."""
    for file in check_run(run_dir.parent, run_dir.name).files:
        if file.damage:
            yield f"{file.path} {file.damage}"
    for left in run_dir.rglob(".*.partial"):
        yield f"{left} is left behind"


def _losses(work: Work) -> Iterator[str]:
    if work.lost or work.doubled:
        yield f"{work.lost} train steps lost, {work.doubled} doubled"
    if work.sampled_again > work.in_flight:
        yield (
            f"{work.sampled_again} completions sampled again, {work.in_flight} were in flight at "
            "the kills"
        )
    if work.scored_again > work.scoring:
        yield f"{work.scored_again} shards scored again, {work.scoring} in flight at the kills"
    if work.needlessly:
        yield f"made again after they were committed: {', '.join(work.needlessly)}"
