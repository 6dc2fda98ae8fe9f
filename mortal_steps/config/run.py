"""The whole configuration of a run."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from mortal_steps.config.compute import ComputeConfig
from mortal_steps.config.data import DataConfig
from mortal_steps.config.model import ModelConfig
from mortal_steps.config.rollout import Engine, EvaluationConfig, RewardsConfig, RolloutConfig
from mortal_steps.config.section import LocalPath, Section
from mortal_steps.config.training import TrainingConfig

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Of runs, which are folders."""
COMMIT = re.compile(r"[0-9a-f]{40}")
"""A `model.revision` that never stands for other files."""
ROLLOUT_WORKERS = 2
MOST_THREADS = 4
"""What an actor takes of a machine's cores by default, at most."""


class CheckpointsConfig(Section):
    """`[checkpoints]`: when the actor's complete state is saved."""

    save_steps: int = Field(100, ge=1)
    """Save a checkpoint every N steps and at the end."""
    keep_last: int = Field(2, ge=1)
    """Keep the newest N checkpoints."""
    keep_best: bool = True
    """Also keep the checkpoint with the best evaluation reward (without evaluations: the best
    training reward)."""
    keep_rollouts: int | None = Field(None, ge=1)
    """Keep the prompts, completions and scores of the newest N steps, and of those that the newest
    `keep_last` checkpoints are replayed through; default: of all steps."""

    @model_validator(mode="after")
    def _a_run_may_go_on_from_the_last_checkpoint_but_one(self) -> Self:
        if self.keep_rollouts is not None and self.keep_last == 1:
            raise ValueError(
                f"checkpoints.keep_rollouts = {self.keep_rollouts} needs keep_last = 2 or more: a "
                "run that is killed while its newest checkpoint is noted goes on from the one "
                "before; raise keep_last, or keep all rollouts"
            )
        return self


class LoggingConfig(Section):
    """`[logging]`: what is reported, and where."""

    artifact_steps: int = Field(50, ge=1)
    """Refresh the timing table and the progress in the Prefect UI every N steps."""
    server_patience_s: float = Field(300.0, ge=0)
    """Seconds for which a run continues while its Prefect server does not answer; after that it
    saves its state and stops."""
    use_wandb: bool = False
    """Not implemented yet."""
    wandb_project: str = "modal-grpo-trl"
    """Used with `use_wandb`."""


class RunConfig(Section):
    """One run, whole. Every section has defaults; a usable run names data and rewards."""

    name: str = Field("grpo", pattern=NAME)
    """Prefix of generated run ids."""
    seed: int = Field(42, ge=0, lt=2**31)
    """Seed of the data order, sampling, training and new models."""
    run_id: str | None = Field(None, pattern=NAME)
    """Id of the run; training again with the id of an existing run continues that run."""
    runs_dir: LocalPath = "runs"
    """Folder that holds all runs."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    rewards: RewardsConfig = RewardsConfig()
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: CheckpointsConfig = CheckpointsConfig()
    compute: ComputeConfig = ComputeConfig()
    logging: LoggingConfig = LoggingConfig()

    @model_validator(mode="after")
    def _a_node_has_one_rollout_worker(self) -> Self:
        if self.compute.mode == "single_node" and self.num_rollout_workers > 1:
            raise ValueError(
                f"rollout.num_rollout_workers = {self.num_rollout_workers}, and compute.mode = "
                "'single_node' has one; leave it out, or set compute.mode = 'distributed'"
            )
        return self

    @property
    def num_rollout_workers(self) -> int:
        """Workers that sample."""
        by_default = 1 if self.compute.mode == "single_node" else ROLLOUT_WORKERS
        return self.rollout.num_rollout_workers or by_default

    @property
    def num_shards(self) -> int:
        """Parts a batch is dealt out in."""
        shards = min(self.num_rollout_workers, self.training.batch_size)
        return self.rollout.num_shards or shards

    @property
    def max_tokens(self) -> int:
        """Most tokens per generated completion."""
        return self.rollout.max_tokens or self.training.max_completion_length

    @property
    def corrects_importance(self) -> bool:
        """Whether TRL's importance-sampling correction is on."""
        chosen = self.training.importance_sampling_correction
        stale = self.rollout.sync_weights_every > 1 or self.rollout.staleness > 0
        return chosen if chosen is not None else stale or self.rollout.engine == "vllm"

    def settled(
        self,
        *,
        cores: int,
        commit: str | None = None,
        engine: Engine = "transformers",
        context: int | None = None,
    ) -> RunConfig:
        """The same with values for what defaults to the machine and the model.

        The machine has `cores` CPU cores and, for rollout workers, this `engine`; the model is of
        that `commit` of the hub, and takes `context` tokens (None: unknown).
        """
        actor = 1 if self.rollout.staleness else min(cores, MOST_THREADS)
        room = min(self.model.max_model_len, context or self.model.max_model_len)
        return self._settle(
            num_shards=self.num_shards,
            threads={"actor": actor, "rollout": 1, "reward": 1},
            commit=commit,
            engine=engine,
            max_tokens=min(self.max_tokens, room // 2),
        )

    def settled_like(self, begun: RunConfig) -> RunConfig:
        """The same with what a settled configuration has for all that."""
        places = begun.compute.local
        roles = {"actor": places.actor, "rollout": places.rollout, "reward": places.reward}
        return self._settle(
            num_shards=begun.num_shards,
            threads={role: at.threads for role, at in roles.items()},
            commit=begun.model.revision,
            engine=begun.rollout.engine,
            max_tokens=begun.rollout.max_tokens,
        )

    def _settle(
        self,
        *,
        num_shards: int,
        threads: Mapping[str, int | None],
        commit: str | None,
        engine: Engine | None,
        max_tokens: int | None,
    ) -> RunConfig:
        values = self.model_dump()
        rollout = values["rollout"]
        rollout["num_shards"] = self.rollout.num_shards or num_shards
        rollout["engine"] = self.rollout.engine or engine
        rollout["max_tokens"] = self.rollout.max_tokens or max_tokens
        if not COMMIT.fullmatch(self.model.revision or ""):
            values["model"]["revision"] = commit or self.model.revision
        for role, place in values["compute"]["local"].items():
            place["threads"] = place["threads"] or threads[role]
        return RunConfig.model_validate(values)

    def identity(self) -> dict[str, Any]:
        """What decides the run's numbers: everything but places, workers and reporting."""
        data = self.model_dump(mode="json", exclude={"run_id", "runs_dir", "compute", "logging"})
        del data["rollout"]["num_rollout_workers"], data["checkpoints"]
        data["rollout"]["num_shards"] = self.num_shards
        if self.data.on_long == "error":  # all rows are there, as in runs begun without the key
            del data["data"]["on_long"]
        local = self.compute.local
        data["compute"] = {
            "local": {
                "actor": {"threads": local.actor.threads},
                "rollout": {"threads": local.rollout.threads},
            }
        }
        # How a failing reward is met may be changed in mid-run: that is how a run goes on after it.
        data["rewards"] = {key: data["rewards"][key] for key in ("functions", "weights")}
        return data

    def fingerprint(self) -> str:
        """Digest of `identity()`, hexadecimal sha256."""
        return hashlib.sha256(json.dumps(self.identity(), sort_keys=True).encode()).hexdigest()
