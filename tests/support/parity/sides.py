"""The processes of a case: one for stock TRL, one for the actor, and those that are killed.

Every one writes a line per optimizer update, `<number> <digest of the weights>`, at once; one that
comes to the end also writes what it ended with.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError
from mortal_steps.policy import journal
from mortal_steps.policy.algorithms import algorithm_of
from mortal_steps.policy.algorithms.stepping import digests
from mortal_steps.policy.algorithms.stepping import stepper as stepping
from mortal_steps.policy.algorithms.stepping.reproducible import prefer_reproducible_kernels
from mortal_steps.policy.on_disk import checkpoints, weights
from tests.support.parity.cases import Case
from tests.support.parity.models import build
from tests.support.policy.rollouts import make_batch, make_config
from tests.support.policy.runs import make_run
from tests.support.policy.stock import Recorder, run_stock

UPDATES, OUTCOME, REFUSED = "updates", "outcome.json", "refused"


def configuration(case: Case) -> RunConfig:
    """Return the run's configuration; raises what pydantic has about it."""
    return make_config(
        model=dict(case.model),
        rollout=dict(case.rollout),
        algorithm=dict(case.algorithm),
        **case.training,
    )


def stock(case: Case, folder: Path, model: Path) -> None:
    """Stock TRL; builds the model first. What TRL refuses is written down."""
    with _quietly(folder):
        try:
            config = configuration(case)
            algorithm_of(config).check(config)
        except (ConfigError, ValueError) as error:
            (folder / REFUSED).write_text(str(error))
            return
        prefer_reproducible_kernels()  # as the actor does, on a GPU
        build(case.architecture, model)
        recorder = _Digests(folder)
        batches = [make_batch(config, step) for step in range(case.num_steps)]
        metrics = run_stock(config, str(model), folder, batches, recorder).metrics
        recorder.trainer.save_model(str(folder / "final"))
        final = weights.weights_digest(folder / "final")
        _write(folder, {"metrics": metrics, "final": final})


def actor(case: Case, folder: Path, model: Path, kill: tuple[str, int] | None) -> None:
    """The actor from where the run directory stands; kills its own process if told so."""
    with _quietly(folder):
        _let_steppers_tell(folder, kill)
        run = make_run(folder / "run", configuration(case), str(model), num_steps=case.num_steps)
        trainer = run.actor()
        done = sum(1 for _ in run.store.path("steps").glob("*/result.json"))
        ready = trainer.prepare(step=done)
        for step in range(ready.step, case.num_steps):
            trainer.train_step(request=run.request(step))
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


class _Digests(Recorder):
    """Writes down the digest of the weights after every update."""

    def __init__(self, folder: Path, kill_after: int | None = None) -> None:
        super().__init__()
        self._file = folder / UPDATES
        self._left = kill_after

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        with self._file.open("a") as file:
            file.write(f"{state.global_step} {digests.weights_digest(model)}\n")
        if self._left is not None:
            self._left -= 1
            if not self._left:
                os.kill(os.getpid(), signal.SIGKILL)


def _let_steppers_tell(folder: Path, kill: tuple[str, int] | None) -> None:
    place, count = kill or ("", 0)
    recorder = _Digests(folder, count if place == "update" else None)

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
                    os.kill(os.getpid(), signal.SIGKILL)

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
