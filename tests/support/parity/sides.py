"""The processes of a case: one for stock TRL, one for the actor, and those that are killed.

Every one writes a line per optimizer update, `<number> <digest of the weights>`, at once; one that
comes to the end also writes what it ended with.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from mortal_steps.config.training import FULL
from mortal_steps.errors import ConfigError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy import journal
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.algorithms.stepping import stepper as stepping
from mortal_steps.policy.algorithms.stepping.reproducible import prefer_reproducible_kernels
from mortal_steps.policy.checks import check_ranks
from mortal_steps.policy.on_disk import checkpoints, weights
from mortal_steps.policy.ranks.world import join
from mortal_steps.types import RolloutBatch
from tests.support.forking.holder import fork_ranks
from tests.support.parity.cases import Case
from tests.support.parity.models import build
from tests.support.policy.kept import kept_batch, of_so_many
from tests.support.policy.ranks import followers_of
from tests.support.policy.rollouts import make_batch, make_config
from tests.support.policy.runs import make_run
from tests.support.policy.stock import Recorder, run_stock

MEETING_S = 120.0
UPDATES, OUTCOME, REFUSED = "updates", "outcome.json", "refused"


def configuration(case: Case, model: Path) -> RunConfig:
    """Return the run's configuration; raises what pydantic has about it."""
    algorithm: dict[str, Any] = dict(case.algorithm)
    if case.teacher is not None:
        folder = {"name_or_path": str(model.with_name("teacher"))}
        if "teacher" in algorithm:
            algorithm["teacher"] = {**algorithm["teacher"], **folder}
        else:
            teachers = algorithm["teachers"]
            algorithm["teachers"] = {name: {**teachers[name], **folder} for name in teachers}
    return make_config(
        model={**case.model, "name_or_path": str(model)},
        rollout=dict(case.rollout),
        algorithm=algorithm,
        **case.training,
    )


def build_models(case: Case, model: Path) -> None:
    """Write the model, and beside it the teacher, if there is one."""
    build(case.architecture, model)
    if case.teacher is not None:
        sizes = {**case.teacher}
        family = sizes.pop("architecture")
        build(family, model.with_name("teacher"), seed=1, **sizes)


def stock(case: Case, folder: Path, model: Path, rank: int = 0) -> None:
    """Stock TRL, or one of its ranks; builds the model first. What TRL refuses is written down."""
    with _quietly(folder / f"rank-{rank}" if rank else folder):
        if rank == 0:
            build_models(case, model)
        try:
            config = configuration(case, model)
            if rank == 0:
                algorithm_of(config.algorithm).check(Plan(config).trainer)
            check_ranks(Plan(config).trainer, algorithm_of(config.algorithm))
        except (ConfigError, ValueError) as error:
            (folder / REFUSED).write_text(str(error))
            return
        prefer_reproducible_kernels()  # as the actor does, on a GPU
        ranks, shards = config.training.ranks, config.training.sharding == FULL
        if ranks > 1:
            join(rank, ranks, folder / "meeting", MEETING_S, shards=shards)
        recorder = _Digests(folder, every=updates_told(config), writes=rank == 0)
        config, batches = shown(case, config)
        metrics = run_stock(config, str(model), folder, batches, recorder).metrics
        if rank:
            return
        if shards:
            _write(folder, {"metrics": metrics})
            return
        recorder.trainer.save_model(str(folder / "final"))
        final = weights.weights_digest(folder / "final")
        _write(folder, {"metrics": metrics, "final": final})


def actor(case: Case, folder: Path, model: Path, kill: tuple[str, int] | None) -> None:
    """The actor from where the run directory stands; kills its own process if told so."""
    if case.forks_ranks:
        fork_ranks()
    with _quietly(folder):
        config = configuration(case, model)
        on_ranks = config.training.ranks > 1
        victim = _follower if on_ranks and case.number % 4 > 1 else os.getpid
        _let_steppers_tell(folder, kill, victim, every=0 if on_ranks else 1)
        run = make_run(folder / "run", config, str(model), num_steps=case.num_steps, kept=case.kept)
        trainer = run.actor()
        done = sum(1 for _ in run.store.path("steps").glob("*/result.json"))
        ready = trainer.prepare(step=done)
        for step in range(ready.step, case.num_steps):
            result = trainer.train_step(request=run.request(step))
            if on_ranks:
                _tell(folder, (step + 1) * updates_told(config), result.weights_digest)
            if (step + 1) % case.save_steps == 0:
                trainer.checkpoint(step=step + 1, best_score=None)
        saved = trainer.checkpoint(step=case.num_steps, best_score=None)
        final = trainer.save_final()
        results = [journal.find_result(run.store, step) for step in range(case.num_steps)]
        outcome = {
            "metrics": [dict(result.metrics) for result in results if result],
            "states": [result.state_id for result in results if result],
            "state": checkpoints.read_state(run.store, saved.path).digests,
            "final": final.weights_sha256,
        }
        _write(folder, outcome)


def shown(case: Case, config: RunConfig) -> tuple[RunConfig, list[RolloutBatch]]:
    """Return what stock TRL is made for, and its batches: what is kept, where not all is."""
    if case.kept is None:
        return config, [make_batch(config, step) for step in range(case.num_steps)]
    fewer = of_so_many(config, case.kept.num_kept)
    return fewer, [kept_batch(fewer, step, case.kept) for step in range(case.num_steps)]


class _Digests(Recorder):
    """Writes down the digest of the weights after every update, or every few; never, with 0."""

    def __init__(
        self,
        folder: Path,
        kill_after: int | None = None,
        victim: Callable[[], int] = os.getpid,
        *,
        every: int = 1,
        writes: bool = True,
    ) -> None:
        super().__init__()
        self._folder, self._every, self._writes = folder, every, writes
        self._left, self._victim = kill_after, victim

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        if self._every and state.global_step % self._every == 0:
            digest = digests.weights_digest(model)
            if self._writes:
                _tell(self._folder, state.global_step, digest)
        if self._left is not None:
            self._left -= 1
            if not self._left:
                os.kill(self._victim(), signal.SIGKILL)


def updates_told(config: RunConfig) -> int:
    """Return after how many updates weights are digested: each, or those of a step where ranks
    have to come together for it."""
    training = config.training
    return training.optimizer_steps_per_batch if training.ranks > 1 else 1


def _tell(folder: Path, number: int, digest: str) -> None:
    with (folder / UPDATES).open("a") as file:
        file.write(f"{number} {digest}\n")


def _follower() -> int:
    return followers_of(os.getpid())[0]


def _let_steppers_tell(
    folder: Path, kill: tuple[str, int] | None, victim: Callable[[], int], *, every: int
) -> None:
    place, count = kill or ("", 0)
    recorder = _Digests(folder, count if place == "update" else None, victim, every=every)

    class TellingStepper(stepping.TrlStepper):
        calls = 0

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._trainer.add_callback(recorder)

        def save_state(self, folder: Path) -> None:
            super().save_state(folder)
            self._die_in("save_state")

        def export_weights(self, folder: Path) -> None:
            super().export_weights(folder)
            self._die_in("export_weights")

        def _die_in(self, method: str) -> None:
            if method == place:
                TellingStepper.calls += 1
                if TellingStepper.calls == count:
                    os.kill(victim(), signal.SIGKILL)

    stepping.TrlStepper = TellingStepper  # type: ignore[misc]


@contextlib.contextmanager
def _quietly(folder: Path) -> Iterator[None]:
    """With one thread, and what the libraries print in a file."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    with (folder / "log").open("a") as log:
        for stream in (1, 2):
            os.dup2(log.fileno(), stream)
        yield


def _write(folder: Path, outcome: dict[str, Any]) -> None:
    (folder / OUTCOME).write_text(json.dumps(outcome))


def read_updates(folder: Path) -> list[set[str]]:
    """Digests of the weights after each update: more than one where they were not the same."""
    found: dict[int, set[str]] = {}
    for line in _lines(folder / UPDATES):
        number, digest = line.split()
        found.setdefault(int(number), set()).add(digest)
    return [found[number] for number in sorted(found)]


def _lines(path: Path) -> Sequence[str]:
    return path.read_text().splitlines() if path.exists() else []
