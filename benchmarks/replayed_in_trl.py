"""Train a finished run again in stock TRL, on the completions that it has recorded: the same bits?

    python -m benchmarks.replayed_in_trl RUN [--runs-dir runs]

`GRPOTrainer.train()` runs its own loop over the run's problems, calls the run's reward functions,
and computes all metrics anew. Only sampling is replaced: by a `rollout_func` that returns the
recorded tokens, and then seeds torch as a train step does. Compared without tolerance: every tensor
of the final model, and every metric of each step that both log. For full training, in the folder
where the run began. Exit code 1 if anything differs.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from safetensors.torch import load_file

import mortal
from benchmarks.output import folder_for
from mortal_steps.policy.starting_model.base_model import first_model
from mortal_steps.report.samples import trained_on
from mortal_steps.rewards.loading import load_term
from mortal_steps.runs.run import Run, find_run
from mortal_steps.types import RolloutBatch
from tests.support.policy.stock import RecordedRollouts, options_of, stock_grpo

OF_THE_CLOCK = {"step_time", "epoch", "step"}


def recorded(run: Run) -> Iterator[RolloutBatch]:
    """Each step's batch, as the actor was given it."""
    plan = run.plan.trainer
    for step in range(run.info.num_steps):
        given: Any = trained_on(run, step + 1).request.batch
        yield given.read(run.store, step, plan)


def train(
    run: Run, folder: Path, callbacks: Sequence[Any] = ()
) -> tuple[Path, list[dict[str, Any]]]:
    """Stock TRL's final model, and what it has logged of each step."""
    config, batches = run.config, list(recorded(run))
    problems = [group.problem for batch in batches for group in batch.groups]
    options = options_of(config, folder / "trl", len(batches)) | {
        "max_completion_length": config.training.max_completion_length,
        "reward_weights": [term.weight for term in config.rewards.all_terms],
        "shuffle_dataset": False,  # the problems are in the order in which the run took them
    }
    arguments = {
        "model": first_model(run.store, run.plan.actor, run.info.dataset_fingerprint),
        "reward_funcs": [load_term(term) for term in config.rewards.all_terms],
        "train_dataset": Dataset.from_list([{"prompt": p.prompt, **p.columns} for p in problems]),
        "callbacks": list(callbacks),
    }
    trainer = stock_grpo(config, options, RecordedRollouts(config, batches), arguments)
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
    if config.training.use_lora:
        raise SystemExit("this is for full training")
    threads = config.compute.local.actor.threads
    assert threads is not None
    torch.set_num_threads(threads)
    began = time.monotonic()
    with folder_for("mortal-replay") as folder:
        num_differing = compare(run, *train(run, folder))
    print(f"{time.monotonic() - began:.0f} s")
    return 1 if num_differing else 0


if __name__ == "__main__":
    sys.exit(main())
