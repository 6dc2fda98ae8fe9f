"""Stock TRL beside a run: its own loop over the same rows, or training on what the run sampled.

python -m benchmarks.gpu_check.stock '{"what": "own", "folder": "/tmp/x", "config": "/tmp/p/a.toml",
    "settings": [], "run_id": "alone"}'
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from mortal_steps.config.loader import load_config
from mortal_steps.plan import trainer_plan
from mortal_steps.policy.algorithms.stepping.reproducible import prefer_reproducible_kernels

Answer = dict[str, Any]


def own(job: dict[str, Any]) -> Answer:
    """`GRPOTrainer` as a user runs it, with any kernels, which samples with transformers: seconds
    of a step."""
    from benchmarks.meter import StepMeter
    from benchmarks.vs_trl.stock import train

    config, meter = load_config(Path(job["config"]), job["settings"]), StepMeter()
    assert config.model.name_or_path
    train(config, config.model.name_or_path, Path(job["folder"]), meter)
    stamps = [stamp.wall_s for stamp in meter.stamps]
    return {"seconds": _median(stamps)}


def replayed(job: dict[str, Any]) -> Answer:
    """Stock TRL on the completions and scores that a run recorded, with the kernels that the actor
    chooses: sha256 of the final weights, and how many tensors training has moved."""
    from datasets import Dataset
    from trl import GRPOTrainer

    from mortal_steps.policy.algorithms.grpo import GRPO
    from mortal_steps.policy.algorithms.stepping.options import build_options
    from mortal_steps.policy.on_disk.weights import weights_digest
    from mortal_steps.runs.run import find_run
    from tests.support.policy.stock import NoEngine, RecordedRollouts

    prefer_reproducible_kernels()
    run = find_run(Path(job["config"]).parent / "runs", job["run_id"])
    config, batches, folder = run.config, list(_batches(run)), Path(job["folder"])
    rollouts, stamps = RecordedRollouts(config, batches), list[float]()

    def sampled(prompts: Any, trainer: Any) -> Any:
        stamps.append(time.perf_counter())
        return rollouts(prompts, trainer)

    rows = config.training.batch_size * len(batches)
    trainer: Any = GRPOTrainer(
        model=str(config.model.name_or_path),
        args=build_options(trainer_plan(config), GRPO(), num_steps=len(batches), output_dir=folder),
        reward_funcs=[
            _recorded(name, batches) for name in batches[0].groups[0].rollouts[0].rewards
        ],
        train_dataset=Dataset.from_dict({"prompt": [f"problem {row}" for row in range(rows)]}),
        rollout_func=sampled,
    )
    if trainer_plan(config).corrects_importance:
        trainer.use_vllm, trainer.vllm_generation = True, NoEngine()
        trainer._last_loaded_step = -1
    began = [parameter.detach().cpu().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    moved = sum(
        not now.cpu().equal(before)
        for now, before in zip(trainer.model.parameters(), began, strict=True)
    )
    trainer.save_model(str(folder / "final"))
    sha256 = weights_digest(folder / "final")
    return {"sha256": sha256, "moved": moved, "seconds": _median(stamps)}


def _batches(run: Any) -> Iterator[Any]:
    """Yield the batch of each step, as the actor reads it."""
    from mortal_steps.policy import journal

    config = run.config
    for step in range(config.training.max_steps):
        entry = journal.find_entry(run.store, step)
        assert entry is not None
        yield entry.request.batch.read(run.store, step, trainer_plan(config))


def _recorded(name: str, batches: list[Any]) -> Callable[..., list[float | None]]:
    """Return a reward function that knows the scores of each batch in turn."""
    scores = iter(
        [
            [row.rewards[name] for group in batch.groups for row in group.rollouts]
            for batch in batches
        ]
    )

    def score(**_: Any) -> list[float | None]:
        return next(scores)

    score.__name__ = name
    return score


def _median(stamps: list[float]) -> float:
    """Of the steps between stamps, but the first, in which kernels are loaded."""
    took = [end - begin for begin, end in pairwise(stamps)]
    return median(took[1:] or took)


def main(job: dict[str, Any]) -> Answer:
    os.chdir(Path(job["config"]).parent)
    return {"own": own, "replayed": replayed}[job["what"]](job)


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
