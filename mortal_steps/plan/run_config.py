"""The whole configuration of a run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from mortal_steps.config.algorithm import Algorithm, grpo, kind_of
from mortal_steps.config.checkpoints import CheckpointsConfig, RetentionConfig
from mortal_steps.config.compute import ComputeConfig
from mortal_steps.config.data import DataConfig
from mortal_steps.config.environment import Environment, EnvironmentConfig
from mortal_steps.config.evaluation import EvaluationConfig
from mortal_steps.config.field_metadata import (
    NO_NUMBERS,
    NO_STATE,
    Decides,
    Trl,
    identity_of,
    trl_options_decided,
)
from mortal_steps.config.logging import LoggingConfig
from mortal_steps.config.model import ModelConfig
from mortal_steps.config.rewards import RewardsConfig
from mortal_steps.config.rollout import RolloutConfig, check_one_machine
from mortal_steps.config.section import NAME, LocalPath, Section
from mortal_steps.config.selection import Selection, everything
from mortal_steps.config.training import TrainingConfig
from mortal_steps.plan.across_sections import (
    check_completions_to_compare,
    check_environment,
    check_prompts,
    check_quantization,
    check_selection,
    check_single_node,
    check_source,
    check_teachers,
    check_trl_options,
    check_until,
    pinned_evaluation,
    scores_of_evaluations,
    with_defaults_of,
)
from mortal_steps.policy.algorithms.table import ALGORITHMS
from mortal_steps.schedule import derive_seed
from mortal_steps.selection.table import ALL
from mortal_steps.types import SamplingParams

ROLLOUT_WORKERS = 2
SEED_OF_THE_RUN = -1
"""Value of `seed` with which each run has another one."""


class RunConfig(Section):
    """One run, whole. Every section has defaults; a usable run names data and rewards."""

    name: str = Field("grpo", pattern=NAME)
    """Prefix of generated run ids; with RLOO, the default is `rloo`."""
    seed: Annotated[int, Trl("seed"), Decides("data_seed")] = Field(42, ge=-1, lt=2**31)
    """Seed of the data order, sampling, training and new models; -1: each run has one of its own,
    made from its id."""
    run_id: Annotated[str | None, NO_NUMBERS] = Field(None, pattern=NAME)
    """Id of the run; training again with the id of an existing run continues that run."""
    runs_dir: Annotated[LocalPath, NO_NUMBERS, Decides("output_dir")] = "runs"
    """Folder that holds all runs."""
    model: ModelConfig = ModelConfig()
    data: DataConfig = DataConfig()
    rollout: RolloutConfig = RolloutConfig()
    environment: Annotated[Environment, NO_STATE] = EnvironmentConfig()
    rewards: RewardsConfig = RewardsConfig()
    algorithm: Algorithm = Field(default_factory=grpo)
    training: TrainingConfig = TrainingConfig()
    selection: Annotated[Selection, NO_STATE] = Field(default_factory=everything)
    evaluation: EvaluationConfig = EvaluationConfig()
    checkpoints: Annotated[CheckpointsConfig, NO_NUMBERS] = CheckpointsConfig()
    retention: Annotated[RetentionConfig, NO_NUMBERS] = RetentionConfig()
    compute: ComputeConfig = ComputeConfig()
    logging: Annotated[LoggingConfig, NO_NUMBERS] = LoggingConfig()

    @model_validator(mode="before")
    @classmethod
    def _defaults_are_the_algorithms(cls, values: Any) -> Any:
        named = isinstance(values, Mapping) and "algorithm" in values
        return with_defaults_of(kind_of(values["algorithm"]), values) if named else values

    @model_validator(mode="after")
    def _sections_go_together(self) -> Self:
        algorithm, rollout, training = self.algorithm, self.rollout, self.training
        check_prompts(algorithm, self.data)
        check_completions_to_compare(algorithm, training)
        check_source(algorithm, rollout)
        check_selection(self.selection, algorithm, rollout, training)
        check_teachers(self.rewards_and_teachers, algorithm, rollout.temperature)
        check_trl_options(training, trl_options_decided(type(self)))
        if training.until.judges and not self.evaluates:
            raise ValueError(
                "training.until looks at evaluations, and the run has none; hold problems out "
                "(data.eval_samples, data.eval_source), and see evaluation.eval_steps"
            )
        scores = scores_of_evaluations(self.eval_rewards, self.evaluation, self.data)
        check_until(training.until, algorithm, self.evaluation, scores)
        by_loss = algorithm.type if algorithm.judges_by_loss else None
        self.evaluation.check_beside(self.data, max_tokens=self.max_tokens, by_loss=by_loss)
        check_environment(self.environment, algorithm, rollout, self.compute)
        check_quantization(self.model, training)
        check_single_node(self.compute, self.num_rollout_workers)
        check_one_machine(rollout, None if self.compute.place.here else self.compute.backend)
        _ = rollout.source_settings  # raises for options that the source does not take
        return self

    @property
    def id_prefix(self) -> str:
        """What generated ids begin with: the name, or an algorithm other than the default."""
        unnamed = self.name == type(self).model_fields["name"].default
        return self.algorithm.type if unnamed and self.algorithm.type in ALGORITHMS else self.name

    @property
    def num_rollout_workers(self) -> int:
        """Workers that sample."""
        by_default = 1 if self.compute.mode == "single_node" else ROLLOUT_WORKERS
        return self.rollout.num_rollout_workers or by_default

    @property
    def num_made_rows(self) -> int | None:
        """Rows of a run whose environment or batch source gives the prompts, or whose rows are no
        prompts; None where rows have them."""
        elsewhere = self.environment.gives_prompts or self.rollout.source_kind.brings_data
        elsewhere = elsewhere or self.algorithm.judges_by_loss
        return self.training.batch_size if elsewhere else None

    @property
    def num_shards(self) -> int:
        """Parts a batch is dealt out in."""
        shards = min(self.num_rollout_workers, self.training.batch_size)
        return self.rollout.num_shards or shards

    @property
    def problems_per_shard(self) -> int:
        """Problems in a part of a batch, at most."""
        return -(-self.training.batch_size // self.num_shards)

    @property
    def max_tokens(self) -> int:
        """Most tokens per generated completion."""
        return self.rollout.max_tokens or self.training.max_completion_length

    @property
    def sampling(self) -> SamplingParams:
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.rollout.temperature,
            top_p=self.rollout.top_p,
            top_k=self.rollout.top_k,
            min_p=self.rollout.min_p,
            stop=self.rollout.stop,
        )

    @property
    def eval_sampling(self) -> SamplingParams:
        return SamplingParams(
            max_tokens=self.max_tokens,
            temperature=self.evaluation.temperature,
            stop=self.rollout.stop,
        )

    @property
    def set_rewards(self) -> dict[str, RewardsConfig]:
        """What scores the sets of held-out problems that have rewards of their own."""
        usual, own = self.eval_rewards, self.evaluation.problem_sets
        found = {name: each.rewards(usual) for name, each in own.items()}
        return {name: each for name, each in found.items() if each is not usual}

    @property
    def eval_rewards(self) -> RewardsConfig:
        return self.rewards.judging_by(self.evaluation.functions)

    def with_own_seed(self) -> RunConfig:
        """Return the configuration of a run that has an id: a `seed` of -1 is made from the id."""
        if self.seed != SEED_OF_THE_RUN:
            return self
        return self.model_copy(update={"seed": derive_seed("run", str(self.run_id)) % 2**31})

    def for_evaluation(self) -> RunConfig:
        """Return the same with the rewards that score evaluations in the place of training's."""
        evaluation = self.evaluation.model_copy(update={"functions": None})
        return self.model_copy(update={"rewards": self.eval_rewards, "evaluation": evaluation})

    @property
    def evaluates(self) -> bool:
        every = self.evaluation.eval_steps
        has_any = self.data.holds_out or bool(self.evaluation.harnesses)
        return has_any if every is None else bool(every)

    @property
    def samples_held_out(self) -> bool:
        """Whether evaluations sample the held-out problems and score the completions."""
        return self.evaluates and not self.algorithm.judges_by_loss

    @property
    def scores_held_out_as_usual(self) -> bool:
        """Whether problems are held out that `eval_rewards` score: all, or those of a set without
        rewards of its own."""
        sets = self.data.eval_sets
        return self.data.holds_out and not (sets and sets.keys() <= self.set_rewards.keys())

    @property
    def training_rewards(self) -> RewardsConfig | None:
        """What scores the completions that are trained on; None: nothing does, as nothing is
        learned from scores and no rewards are named."""
        scores = self.algorithm.learns_from_rewards or self.rewards.are_named
        return self.rewards if scores else None

    @property
    def is_unscored(self) -> bool:
        """Whether nothing scores the completions that the run trains on."""
        return self.algorithm.judges_by_loss or self.training_rewards is None

    @property
    def rewards_and_teachers(self) -> RewardsConfig | None:
        """What reward workers compute of the completions that are trained on: their rewards, and
        what teachers say; None: nothing."""
        teachers = self.algorithm.teacher_terms(self.rollout.temperature)
        if not teachers:
            return self.training_rewards
        named = self.rewards.all_terms if self.rewards.are_named else ()
        changes = {"terms": (*named, *teachers), "functions": (), "weights": None}
        return self.rewards.model_copy(update=changes)

    @property
    def only_merged(self) -> str | None:
        """The key by which the adapter is more than engines compute; None without one."""
        if self.model.quantization:
            return "model.quantization"
        option = self.training.lora.only_merged
        return f"training.lora.peft.{option}" if option else None

    @property
    def sampled_model(self) -> ModelConfig:
        published_in = self.rollout.published_in(self.model.dtype)
        return self.model.model_copy(update={"dtype": published_in or self.model.dtype})

    def pinned(self, commit_of: Callable[[str, ModelConfig], str | None]) -> RunConfig:
        """Return the same with the commits of the hub's models that score or teach. `commit_of`
        returns that of one after the other, for its table (`rewards` for all that score) and the
        model; None: as it is."""

        def of_rewards(model: ModelConfig) -> str | None:
            return commit_of("rewards", model)

        rewards, algorithm = self.rewards.pinned(of_rewards), self.algorithm.pinned(commit_of)
        changed: dict[str, Any] = {"rewards": rewards, "algorithm": algorithm}
        judging = self.eval_rewards, sorted(self.set_rewards)
        evaluation = pinned_evaluation(self.evaluation, *judging, of_rewards)
        if evaluation is not self.evaluation:
            changed["evaluation"] = evaluation
        return self.model_copy(update=changed)

    def without_teachers(self) -> RunConfig:
        """Return the same for judging models by rewards, with which teachers have nothing to do."""
        if not self.algorithm.teacher_terms(self.rollout.temperature):
            return self
        return self.model_copy(update={"algorithm": grpo()})

    def of_finished_model(self) -> RunConfig:
        """Return the same for workers that sample with a whole, finished model."""
        there: dict[str, Any] = dict.fromkeys(("revision", "new", "warm_start"))
        model = self.model.model_copy(update=there | {"quantization": {}})
        whole = self.training.model_copy(update={"use_lora": False})
        return self.without_teachers().model_copy(update={"model": model, "training": whole})

    def identity(self, *, defaults: bool = True) -> dict[str, Any]:
        """Return the keys that decide the run's numbers; without `defaults`, those that differ."""
        options = self.rollout.source_settings
        kept = identity_of(options, options.model_dump(), defaults=defaults)
        decided = {"num_shards": self.num_shards, "source_options": kept}
        rollout = self.rollout.model_copy(update=decided)
        accumulation = {"gradient_accumulation_steps": self.training.accumulation_steps}
        training = self.training.model_copy(update=accumulation)
        changes = {"rollout": rollout, "training": training}
        if self.evaluation.eval_steps is None and not self.evaluates:
            changes["evaluation"] = self.evaluation.model_copy(update={"eval_steps": 0})
        meant = self.model_copy(update=changes)
        found = identity_of(meant, meant.model_dump(mode="json"), defaults=defaults)
        if not defaults and self.selection.type == ALL:  # as before there were others
            del found["selection"]
        return found

    def fingerprint(self) -> str:
        """Return the sha256 of what differs from the defaults in `identity()`: a key that a later
        version adds changes no fingerprint."""
        chosen = self.identity(defaults=False)
        return hashlib.sha256(json.dumps(chosen, sort_keys=True).encode()).hexdigest()
