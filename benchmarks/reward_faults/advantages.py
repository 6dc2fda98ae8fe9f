"""Advantages as the actor computes them: TRL's trainer takes a step on the scored batch."""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.reward_faults.batch import COMPLETIONS, GROUPS, NUM_SHARDS
from mortal_steps.config import NewModelConfig, RewardsConfig, RunConfig, TrainingConfig
from mortal_steps.plan import trainer_plan
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.algorithms.stepping.stepper import TrlStepper
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.types import GeneratedShard, PolicyVersion, Rollout, RolloutBatch, RolloutGroup

NAME = "score"
Scores = Mapping[str, Sequence[float | None]]
"""Of each problem, the scores of its completions."""


class Advantages:
    """A trainer of a small random model. Advantages do not depend on its weights."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
        logging.getLogger("trl").setLevel(logging.ERROR)  # it warns of each masked batch
        build_model(folder / "model", NewModelConfig(), seed=0)
        config = RunConfig(
            rewards=RewardsConfig(functions=(f"made.up:{NAME}",)),
            training=TrainingConfig(
                batch_size=NUM_SHARDS * GROUPS,
                num_generations=COMPLETIONS,
                max_completion_length=8,
                gradient_checkpointing=False,
            ),
        )
        self._stepper = TrlStepper(
            GRPO(),
            trainer_plan(config),
            model_path=str(folder / "model"),
            num_steps=1_000,
            output_dir=folder / "trainer",
        )
        self._stepper.begin()

    def of(self, shards: Sequence[GeneratedShard], scores: Scores) -> dict[str, str]:
        """Return the bits of the advantages of each problem's completions, in hexadecimal."""
        groups = [
            RolloutGroup(
                problem=group.problem,
                prompt_ids=group.prompt_ids,
                rollouts=[
                    Rollout(completion=completion, rewards={NAME: score}, reward=score)
                    for completion, score in zip(
                        group.completions, scores[group.problem.id], strict=True
                    )
                ],
            )
            for shard in shards
            for group in shard.groups
        ]
        batch = RolloutBatch(step=0, policy_version=PolicyVersion(0), groups=groups)
        self._stepper.train_step(batch, seed=0)
        rows = list(self._stepper._trainer._logs["advantages"])
        assert len(rows) == len(groups) * COMPLETIONS
        return {
            group.problem.id: struct.pack(
                f">{COMPLETIONS}d", *rows[number * COMPLETIONS : (number + 1) * COMPLETIONS]
            ).hex()
            for number, group in enumerate(groups)
        }
