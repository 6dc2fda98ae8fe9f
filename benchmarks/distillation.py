"""How much of a teacher does a student of half its size reach, and at what price beside GRPO?

    python -m benchmarks.distillation [--seeds 0 1 2] [--output FILE]

The teacher is the demo's model, trained by GRPO as the demo is. The student is narrower, and has
the demo's warm start. From there it learns twice: by distillation, with a completion a prompt and
without rewards, and by GRPO as the teacher has. All is done in this process, whose CPU seconds are
counted. Exit code 1 if a distilled student reaches less than 95 % of its teacher, held out.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.jobs import ROOT
from benchmarks.output import command_line, console, folder_for, results_table, write_results
from mortal_steps.plan.loader import load_config
from mortal_steps.report.recorder import Recorder
from mortal_steps.types import Evaluation
from tests.support.bare_flow import bare_in, go_on

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


def learn(name: str, folder: Path, seed: str, *overrides: str) -> tuple[Path, list[Moment]]:
    """Train the demo with these overrides; return its model, and how it came there."""
    own = [f"seed={seed}", f"runs_dir={folder}", "evaluation.eval_steps=20"]
    config = load_config(ROOT / "deployments/configs/demo.toml", [*own, *overrides])
    moments, began = list[Moment](), time.process_time()

    class Clock(Recorder):
        def evaluation(self, evaluation: Evaluation) -> None:
            super().evaluation(evaluation)
            tokens = sum(row["num_sampled_tokens"] for row in self._run.metrics())
            score, cpu_s = evaluation.metrics["exact_match"], time.process_time() - began
            at = Moment(step=evaluation.step, score=score, tokens=tokens, cpu_s=cpu_s)
            moments.append(at)

    run = go_on(config.model_copy(update={"run_id": f"{name}-{seed}"}), recorder=Clock)
    console.print(f"{name}, seed {seed}: {moments[-1]}")
    return run.store.path("final"), moments


def _row(seed: str, run: str, at: Moment, best: float) -> dict[str, str]:
    return {
        "seed": seed,
        "run": run,
        "score": f"{at.score:.3f}",
        "of teacher": f"{at.score / best:.1%}",
        "tokens": f"{at.tokens:,}",
        "CPU s": f"{at.cpu_s:.1f}",
    }


def main() -> int:
    parser = command_line("distillation", __doc__)
    parser.add_argument("--seeds", nargs="+", default=["0", "1", "2"])
    asked = parser.parse_args()
    found, rows, missed = {}, list[dict[str, str]](), 0
    with folder_for("distillation") as folder, bare_in(ROOT):
        for seed in asked.seeds:
            model, taught = learn("teacher", folder, seed)
            settings = (*HALF, *DISTILLED, f"algorithm.teacher={model}")
            runs = {
                "teacher": taught,
                "distillation": learn("distillation", folder, seed, *settings)[1],
                "grpo": learn("grpo", folder, seed, *HALF)[1],
            }
            best, found[seed] = taught[-1].score, runs
            missed += runs["distillation"][-1].score < GOAL * best
            for run, moments in runs.items():
                first = [each for each in moments if each.score >= GOAL * best][:1]
                rows.append(_row(seed, run, moments[-1], best))
                rows += [_row(seed, f"  to {GOAL:.0%}", at, best) for at in first]
    console.print(results_table("A student of half the teacher's size", rows, left=["run"]))
    write_results(asked.output, {"seeds": found})
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
