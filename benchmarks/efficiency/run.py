"""One training run up to its goal, in a process of its own. It drives the flow's own loop without
Prefect, with the actor and one rollout worker in this process, which changes no bit."""

import json
import time
from pathlib import Path
from typing import Any

from benchmarks.efficiency.tasks import TASKS, write_task
from benchmarks.jobs import ROOT
from mortal_steps.plan.loader import load_config
from mortal_steps.report.recorder import Recorder
from mortal_steps.types import Evaluation
from tests.support import bare_flow


class Reached(BaseException):
    """Ends a run at its goal."""


def measure(job: dict[str, Any]) -> dict[str, Any]:
    folder = Path(job["folder"])
    folder.mkdir()
    task = TASKS[job["task"]]
    write_task(job["task"], folder)
    config = load_config(
        ROOT / "deployments/configs" / task.config,
        [
            *(f"data.source={folder}/train.jsonl", f"data.eval_source={folder}/eval.jsonl"),
            *("data.options={}", "data.eval_samples=0", "rewards.weights=[1.0]"),
            *('rewards.functions=["rewards.py:right"]', "run_id=run", "rollout.num_shards=1"),
            *(f"evaluation.eval_steps={task.every}", "evaluation.temperature=1.0"),
            *("checkpoints.save_steps=1000000", f"training.max_steps={job['max_steps']}"),
            f"seed={job['seed']}",
            *job["overrides"],
        ],
    )
    if config.model.new is None:
        model = config.model.model_copy(
            update={"name_or_path": str(ROOT / config.model.name_or_path)}
        )
        config = config.model_copy(update={"model": model})
    began = time.process_time()
    with bare_flow.bare_in(folder):
        reached = _train(config, job["goal"])
    tokens = [row["num_sampled_tokens"] for row in _lines(folder, "metrics")]
    judged = [[row["step"], row["right"]] for row in _lines(folder, "evaluations")]
    return {
        "reached": reached,
        "steps": len(tokens),
        "tokens": sum(tokens),
        "judged": judged,
        "cpu_s": time.process_time() - began,
    }


def _train(config: Any, goal: float) -> bool:
    """Train until two evaluations in a row have a mean of at least the goal."""
    last = [0.0]

    class Watching(Recorder):
        def evaluation(self, evaluation: Evaluation) -> None:
            super().evaluation(evaluation)
            score = evaluation.metrics["right"]
            if evaluation.step and (score + last[0]) / 2 >= goal:
                raise Reached
            last[0] = score

    try:
        bare_flow.go_on(config, recorder=Watching)
    except Reached:
        return True
    return False


def _lines(folder: Path, name: str) -> list[dict[str, Any]]:
    log = folder / f"runs/run/{name}.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()]
