"""Train a finished run again in stock TRL, on the completions that it has recorded: the same bits?

    python -m benchmarks.replayed_in_trl RUN [--runs-dir runs]

`GRPOTrainer.train()` runs its own loop over the run's problems, calls the run's reward functions,
and computes all metrics anew. Only sampling is replaced: by a `rollout_func` that returns the
recorded tokens, and then seeds torch as a train step does. Compared without tolerance: every tensor
of the final model, and every metric of each step that both log. For full training with the
`transformers` engine, in the folder where the run began. Exit code 1 if anything differs.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import numpy
import torch
from datasets import Dataset
from safetensors.torch import load_file
from trl import GRPOConfig, GRPOTrainer

import mortal
from mortal_steps.plan import trainer_plan
from mortal_steps.report.samples import trained_on
from mortal_steps.runs.run import Run, find_run
from mortal_steps.schedule import train_seed
from mortal_steps.types import RolloutBatch

OF_THE_CLOCK = {"step_time", "epoch", "step"}


def recorded(run: Run) -> Iterator[RolloutBatch]:
    """Each step's batch, as the actor was given it."""
    plan = trainer_plan(run.config)
    for step in range(run.info.num_steps):
        given: Any = trained_on(run, step + 1).request.batch
        yield given.read(run.store, step, plan)


class Recorded:
    """TRL's `rollout_func`."""

    def __init__(self, batches: list[RolloutBatch], seed: int) -> None:
        self._batches, self._seed = iter(batches), seed

    def __call__(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        batch = next(self._batches)
        rows = [(group, each) for group in batch.groups for each in group.rollouts]
        assert prompts == [group.problem.prompt for group, _ in rows], (
            "other problems than the run's"
        )
        seed = train_seed(self._seed, batch.step)
        random.seed(seed)
        numpy.random.seed(seed % 2**32)
        torch.manual_seed(seed)
        return {
            "prompt_ids": [list(group.prompt_ids) for group, _ in rows],
            "completion_ids": [list(each.completion.token_ids) for _, each in rows],
            "logprobs": [list(each.completion.logprobs) for _, each in rows],
        }


def functions(run: Run) -> list[Any]:
    """The reward functions of the run, imported here."""
    found = []
    for number, name in enumerate(run.config.rewards.functions):
        file, _, function = name.rpartition(":")
        spec = importlib.util.spec_from_file_location(f"rewards_{number}", file)
        assert spec is not None and spec.loader is not None, f"{name} is no path/file.py:function"
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found.append(getattr(module, function))
    return found


def train(run: Run, folder: Path) -> tuple[Path, list[dict[str, Any]]]:
    """Stock TRL's final model, and what it has logged of each step."""
    config, batches = run.config, list(recorded(run))
    training = config.training
    problems = [group.problem for batch in batches for group in batch.groups]
    trainer = GRPOTrainer(
        model=config.model.name_or_path,
        reward_funcs=functions(run),
        train_dataset=Dataset.from_list([{"prompt": p.prompt, **p.columns} for p in problems]),
        rollout_func=Recorded(batches, config.seed),
        args=GRPOConfig(
            output_dir=str(folder / "trl"),
            max_steps=len(batches),
            per_device_train_batch_size=training.batch_size * training.num_generations,
            num_generations=training.num_generations,
            max_completion_length=training.max_completion_length,
            shuffle_dataset=False,  # the problems are in the order in which the run took them
            learning_rate=training.learning_rate,
            beta=training.beta,
            loss_type=training.loss_type,
            scale_rewards=training.scale_rewards,
            reward_weights=list(config.rewards.weights or ()) or None,
            temperature=config.rollout.temperature,
            gradient_checkpointing=training.gradient_checkpointing,
            seed=config.seed,
            bf16=False,
            use_cpu=True,
            model_init_kwargs={"dtype": config.model.dtype},
            dataloader_pin_memory=False,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            logging_steps=1,
            **training.trl,
        ),
    )
    trainer.train()
    trainer.save_model(str(folder / "final"))
    return folder / "final", [row for row in trainer.state.log_history if "loss" in row]


def compare(run: Run, final: Path, logged: list[dict[str, Any]]) -> int:
    """Print what was equal; return the number of what differs."""
    own, stock = (
        load_file(folder / "model.safetensors") for folder in (run.store.path("final"), final)
    )
    differing = [
        name for name in own if name not in stock or not torch.equal(own[name], stock[name])
    ]
    differing += sorted(stock.keys() - own.keys())
    print(f"{len(own) - len(differing)} of {len(own)} tensors of the final model are equal")
    metrics = run.metrics()
    names = [name for name in logged[0] if name in metrics[0] and name not in OF_THE_CLOCK]
    others = [
        f"step {row['step']}: {name} {row[name]} and {found[name]}"
        for row, found in zip(metrics, logged, strict=True)
        for name in names
        if row[name] != found[name]
    ]
    print(f"{len(names)} metrics of each of {len(logged)} steps are compared: {', '.join(names)}")
    print("\n".join([*differing, *others]) or "nothing differs")
    return len(differing) + len(others)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("run")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    args = parser.parse_args()
    run = find_run(mortal.open_run(args.run, args.runs_dir).path.parent, Path(args.run).name)
    config = run.config
    if config.training.use_lora or config.rollout.engine != "transformers":
        raise SystemExit("this is for full training with rollout.engine = 'transformers'")
    threads = config.compute.local.actor.threads
    assert threads is not None
    torch.set_num_threads(threads)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mortal-replay-") as folder:
        num_differing = compare(run, *train(run, Path(folder)))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if num_differing else 0


if __name__ == "__main__":
    sys.exit(main())
