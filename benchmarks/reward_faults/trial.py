"""One fault, planted while the reward worker of a run scores the batch."""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.reward_faults.advantages import Advantages, Scores
from benchmarks.reward_faults.batch import make_shards, struck_problems
from benchmarks.reward_faults.fault import Fault, Scene
from benchmarks.reward_faults.functions import ONCE
from mortal_steps.compute.local import call_several
from mortal_steps.compute.roles import worker_specs
from mortal_steps.config import RewardsConfig, RunConfig
from mortal_steps.errors import MortalError, TransientError
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.store.records import shard_file
from mortal_steps.types import (
    GeneratedShard,
    GenerationRef,
    RewardedShard,
    RewardRequest,
    StageTiming,
)
from tests.support.rewards.processes import assert_ends

ATTEMPTS = 3
"""Of a stage whose worker is lost, as in a run."""
STEP = "steps/000000"
MARK = f"m{os.getpid() % 10**7}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Boundary:
    """Where faults strike."""

    name: str
    stage: Any
    """What they are planted on."""
    term: Mapping[str, Any]
    """The reward."""
    timeout_s: float = 3.0
    programs: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What became of the batch."""

    boundary: str
    fault: str
    lasts: bool
    kinds: Sequence[str] = field(default_factory=list)
    """Of the failures that were masked."""
    stopped_by: str | None = None
    """The error that ends a run; nothing was scored then, and what is scored after the fault
    stands here."""
    masked: Sequence[str] = field(default_factory=list)
    """Problems without scores."""
    invented: int = 0
    """Scores that the undisturbed batch does not have."""
    untouched: int = 0
    """Problems whose scores and advantages have the same bits."""
    touched: Sequence[str] = field(default_factory=list)
    """Problems that are scored and do not, or are masked though nothing struck them."""
    seconds: float = 0.0

    @property
    def holds(self) -> bool:
        """Whether it is as promised."""
        right = not self.invented and not self.touched
        return right and (self.lasts or not (self.masked or self.stopped_by))

    @property
    def told(self) -> str:
        """In short."""
        if self.stopped_by:
            return f"stops ({self.stopped_by})"
        return f"masked ({', '.join(self.kinds)})" if self.masked else "same scores"


def score_undisturbed(boundary: Boundary) -> Scores:
    """Return the batch where nothing happens."""
    with _working_folder():
        run = _Run(boundary, "")
        run.score([0, 1])
        return run.scores()


def strike(
    boundary: Boundary, fault: Fault, *, once: bool, undisturbed: Scores, advantages: Advantages
) -> Outcome:
    """Score the batch with the fault in its first shard."""
    began = time.monotonic()
    with _working_folder():
        run = _Run(boundary, f"{ONCE if once else ''}{fault.name}")
        stopped_by = None
        try:
            with fault.plant(boundary.stage, Scene(once=once, mark=MARK)):
                run.score([0])
        except MortalError as error:
            stopped_by = type(error).__name__
            assert not run.committed(0), "a shard that stopped the run has scores"
            run.repair()
        run.score([0, 1])
        for left in Path().glob("child-*"):  # what a function has started ends with its process
            assert_ends(int(left.read_text()))
        return _compared(
            Outcome(
                boundary=boundary.name,
                fault=fault.name,
                lasts=not once,
                kinds=run.kinds(),
                stopped_by=stopped_by,
                seconds=round(time.monotonic() - began, 1),
            ),
            run,
            struck_problems(fault.strikes),
            undisturbed,
            advantages,
        )


def _compared(
    outcome: Outcome, run: _Run, struck: set[str], undisturbed: Scores, advantages: Advantages
) -> Outcome:
    scores = run.scores()
    bits = advantages.of(run.shards, scores)
    whole = advantages.of(run.shards, undisturbed)
    masked = [problem for problem, given in scores.items() if None in given]
    same = [
        problem
        for problem, given in scores.items()
        if given == undisturbed[problem] and bits[problem] == whole[problem]
    ]
    invented = [
        score
        for problem, given in scores.items()
        for score, right in zip(given, undisturbed[problem], strict=True)
        if score is not None and score != right
    ]
    return replace(
        outcome,
        masked=masked,
        invented=len(invented),
        untouched=len(same),
        touched=sorted(set(scores) - set(same) - (set(masked) & struck)),
    )


@contextlib.contextmanager
def _working_folder() -> Iterator[None]:
    with tempfile.TemporaryDirectory(prefix="mortal-fault-") as folder, contextlib.chdir(folder):
        yield


class _Run:
    """A run directory in the working folder, with the batch to score."""

    def __init__(self, boundary: Boundary, fault: str) -> None:
        self._boundary = boundary
        self._store = RunStore(Path("run").absolute())
        self._store.root.mkdir()
        self._store.path(IDENTITY_FILE).write_text("{}")
        self._set(fault)

    def _set(self, fault: str) -> None:
        self.shards = make_shards(programs=self._boundary.programs, mark=MARK, fault=fault)
        self._requests = [self._request(shard) for shard in self.shards]

    def repair(self) -> None:
        """Nothing strikes any more."""
        self._set("")

    def score(self, numbers: Sequence[int]) -> None:
        """By a reward worker of its own, and another one if that is lost, as a run does."""
        config = RunConfig(
            rewards=RewardsConfig(
                terms=(self._boundary.term,),
                on_error="mask",
                retries=1,
                timeout_s=self._boundary.timeout_s,
            )
        )
        spec = worker_specs(
            config, run_dir=self._store.root, fingerprint="", model_path="", num_steps=1
        )["reward"]
        payloads = [{"request": self._requests[number]} for number in numbers]
        for attempt in range(1, ATTEMPTS + 1):
            try:
                call_several(spec, "reward", payloads, self._store.path("logs"))
                return
            except TransientError:
                if attempt == ATTEMPTS:
                    raise

    def committed(self, number: int) -> bool:
        """Whether a shard has scores."""
        return self._store.find_record(self._output(number), RewardedShard) is not None

    def scores(self) -> dict[str, list[float | None]]:
        """Of each problem."""
        found: dict[str, list[float | None]] = {}
        for shard, rewarded in zip(self.shards, self._rewarded(), strict=True):
            for group, rows in zip(shard.groups, rewarded.rewards, strict=True):
                found[group.problem.id] = [score for row in rows for score in row.values()]
        return found

    def kinds(self) -> list[str]:
        """Of the failures."""
        return sorted({each.kind for rewarded in self._rewarded() for each in rewarded.failures})

    def _rewarded(self) -> Iterator[RewardedShard]:
        for number in range(len(self.shards)):
            found = self._store.find_record(self._output(number), RewardedShard)
            assert found is not None
            yield found[1]

    def _output(self, number: int) -> str:
        return shard_file(STEP, "rewards", number)

    def _request(self, shard: GeneratedShard) -> RewardRequest:
        name = shard_file(STEP, "generations", shard.shard)
        generation = GenerationRef(
            step=0,
            shard=shard.shard,
            file=self._store.write_record(name, shard, GeneratedShard),
            num_completions=sum(len(group.completions) for group in shard.groups),
            num_tokens=0,
            policy_version=shard.policy_version,
            timing=StageTiming(stage="generate", step=0),
        )
        return RewardRequest(
            stage="reward", generation=generation, output=self._output(shard.shard)
        )
