"""How much of a teacher does a student of half its size reach, and at what price beside GRPO?

    python -m benchmarks.distillation [--seeds 0 1 2] [--output FILE]

The teacher is the demo's model, trained by GRPO as the demo is. The student is narrower, and has
the demo's warm start. From there it learns twice: by distillation, with a completion a prompt and
without rewards, and by GRPO as the teacher has. All is done in this process, whose CPU seconds are
counted. Exit code 1 if a distilled student reaches less than 95 % of its teacher, held out.
"""

from __future__ import annotations

import argparse
import asyncio
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
GOAL = 0.95
HALF = ("model.new.hidden_size=44", "model.new.head_dim=22", "model.new.intermediate_size=88")
"""The demo's model with 0.69 of its width: 43,000 parameters of 87,000."""
DISTILLED = (
    "algorithm.type=distillation",
    "training.num_generations=1",
    "training.batch_size=64",
    "training.learning_rate=2e-3",
    "rewards.functions=[]",
    "evaluation.functions=['mortal.rewards.functions:exact_match']",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Moment:
    """Where a run stands at an evaluation; tokens are those sampled for training until then."""

    step: int
    score: float
    tokens: int
    cpu_s: float


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
        score, cpu_s = evaluation.metrics["exact_match"], time.process_time() - self._began
        at = Moment(step=evaluation.step, score=score, tokens=self._tokens, cpu_s=cpu_s)
        self.moments.append(at)


def learn(name: str, folder: Path, seed: str, *overrides: str) -> tuple[Path, list[Moment]]:
    """Train the demo with these overrides; return its model, and how it came there."""
    own = [f"seed={seed}", f"runs_dir={folder}", "evaluation.eval_steps=20"]
    config = load_config(ROOT / "deployments/configs/demo.toml", [*own, *overrides])
    run = open_run(config.model_copy(update={"run_id": f"{name}-{seed}"}))
    clock = Clock(run)
    here: Any = InProcess

    async def drive() -> None:
        async with open_session(run, local=here) as session:
            await bare.train(session, clock)

    asyncio.run(drive())
    console.print(f"{name}, seed {seed}: {clock.moments[-1]}")
    return run.store.path("final"), clock.moments


def main() -> int:
    parser = argparse.ArgumentParser(description="Distillation beside GRPO.")
    parser.add_argument("--seeds", nargs="+", default=["0", "1", "2"])
    add_output_option(parser, "distillation")
    asked = parser.parse_args()
    headings = ("seed", "run", "score", "of teacher", "tokens", "CPU s")
    table = results_table("A student of half the teacher's size", *headings, left=["run"])
    found, missed = {}, 0
    with tempfile.TemporaryDirectory() as name, bare_in(ROOT):
        for seed in asked.seeds:
            model, taught = learn("teacher", Path(name), seed)
            settings = (*HALF, *DISTILLED, f"algorithm.teacher={model}")
            runs = {
                "teacher": taught,
                "distillation": learn("distillation", Path(name), seed, *settings)[1],
                "grpo": learn("grpo", Path(name), seed, *HALF)[1],
            }
            best, found[seed] = taught[-1].score, runs
            missed += runs["distillation"][-1].score < GOAL * best
            for run, moments in runs.items():
                first = [each for each in moments if each.score >= GOAL * best][:1]
                for what, at in ((run, moments[-1]), *((f"  to {GOAL:.0%}", at) for at in first)):
                    cells = (f"{at.score:.3f}", f"{at.score / best:.1%}", f"{at.tokens:,}")
                    table.add_row(seed, what, *cells, f"{at.cpu_s:.1f}")
    console.print(table)
    write_results(asked.output, {"seeds": found})
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
