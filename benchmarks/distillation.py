"""How much of a teacher does a student of half its size reach, and at what price beside GRPO?

    python -m benchmarks.distillation [--seeds 0 1 2] [--output FILE]

The teacher is the demo's model, trained by GRPO as the demo is. The student is narrower, and has
the demo's warm start. From there it learns twice: by distillation, with a completion a prompt and
without rewards, and by GRPO as the teacher has. All runs go on in this process, without Prefect, so
that the CPU seconds are those of sampling, training and evaluations alone. Exit code 1 if a
distilled student reaches less than 95 % of its teacher on the held-out problems.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.output import add_output_option, console, results_table, write_results
from mortal_steps.orchestration.driver import open_session
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from mortal_steps.report.recorder import Recorder
from tests.support import bare
from tests.support.bare_flow import InProcess, bare_in

ROOT = Path(__file__).parent.parent
JUDGED_BY = "exact_match"
GOAL = 0.95
"""Part of the teacher's score that a student is to reach."""
HALF = (
    "model.new.hidden_size=44",
    "model.new.head_dim=22",
    "model.new.intermediate_size=88",
)
"""The demo's model with 0.69 of its width: 43,000 parameters of 87,000."""
EVERY = 20
"""Steps from one evaluation to the next."""
DISTILLED = {
    "training.num_generations": 1,
    "training.batch_size": 64,
    "training.max_steps": 100,
    "training.learning_rate": 2e-3,
    "rewards.functions": [],
    "evaluation.functions": "['mortal.rewards.functions:exact_match']",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """Where a run stands at an evaluation."""

    step: int
    score: float
    tokens: int
    """Sampled for training until then."""
    cpu_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Learned:
    """What a run came to."""

    run: str
    model: str
    moments: list[Moment]

    def reaches(self, score: float) -> Moment | None:
        """Return the first evaluation with this score, if there is one."""
        return next((each for each in self.moments if each.score >= score), None)


class Clock(Recorder):
    """Stamps each evaluation."""

    def __init__(self, run: Any) -> None:
        super().__init__(run)
        self.moments: list[Moment] = []
        self._tokens, self._began = 0, time.process_time()

    def step(self, *given: Any) -> Any:
        report = super().step(*given)
        self._tokens += report.num_tokens
        return report

    def evaluation(self, evaluation: Any) -> None:
        super().evaluation(evaluation)
        cpu_s, score = time.process_time() - self._began, evaluation.metrics[JUDGED_BY]
        moment = Moment(step=evaluation.step, score=score, tokens=self._tokens, cpu_s=cpu_s)
        self.moments.append(moment)


def learn(name: str, folder: Path, seed: int, *overrides: str) -> Learned:
    """Train the demo with these overrides."""
    own = [f"seed={seed}", f"runs_dir={folder}", f"evaluation.eval_steps={EVERY}"]
    config = load_config(ROOT / "deployments/configs/demo.toml", [*own, *overrides])
    run = open_run(config.model_copy(update={"run_id": f"{name}-{seed}"}))
    clock = Clock(run)

    async def drive() -> None:
        async with open_session(run, local=InProcess) as session:
            await bare.train(session, clock)

    asyncio.run(drive())
    final = run.manifest.final
    assert final is not None
    found = Learned(run=name, model=str(run.store.path(final.path)), moments=clock.moments)
    console.print(f"{name}, seed {seed}: {found.moments[-1]}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description="Distillation beside GRPO, from the same student.")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    add_output_option(parser, "distillation")
    asked = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    title = "A student of half the teacher's size, held out"
    table = results_table(
        title, "seed", "run", "score", "of teacher", "tokens", "CPU s", left=["run"]
    )
    found, reached = [], True
    with tempfile.TemporaryDirectory() as name, bare_in(ROOT):
        for seed in asked.seeds:
            teacher = learn("teacher", Path(name), seed)
            settings = [f"{key}={value}" for key, value in DISTILLED.items()]
            settings += ["algorithm.type=distillation", f"algorithm.teacher={teacher.model}"]
            distilled = learn("distillation", Path(name), seed, *HALF, *settings)
            rewarded = learn("grpo", Path(name), seed, *HALF)
            goal = GOAL * teacher.moments[-1].score
            reached &= distilled.moments[-1].score >= goal
            found += [teacher, distilled, rewarded]
            for each in (teacher, distilled, rewarded):
                for moment, what in (
                    (each.moments[-1], each.run),
                    (each.reaches(goal), "  to 95 %"),
                ):
                    if moment is not None:
                        share = moment.score / teacher.moments[-1].score
                        cells = (f"{moment.score:.3f}", f"{share:.1%}", f"{moment.tokens:,}")
                        table.add_row(str(seed), what, *cells, f"{moment.cpu_s:.1f}")
    console.print(table)
    write_results(asked.output, {"runs": found})
    return not reached


if __name__ == "__main__":
    raise SystemExit(main())
