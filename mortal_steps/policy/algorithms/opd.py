"""`type = "opd"`: on-policy distillation whose teacher is a role of its own.

Reward workers run it, and what it says of the sampled tokens is a record. The loss is that of TRL's
experimental ServerDistillationTrainer, which asks a server for the same.
tests/integration/policy/test_opd_parity.py compares all of it, bit for bit, with that trainer's own
`train()`.
"""

import dataclasses
import re
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Self

import numpy
from pydantic import BeforeValidator, Field, model_validator

from mortal_steps.config import ModelConfig, RolloutConfig, TrainingConfig
from mortal_steps.config.field_metadata import STATE
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.config.section import NAME, Options
from mortal_steps.policy.algorithms.distillation import TeacherConfig, by_name, check_no_rewards
from mortal_steps.policy.algorithms.shared_tokens import check_sizes, check_tokens
from mortal_steps.policy.algorithms.trl_algorithm import TrlAlgorithm
from mortal_steps.policy.algorithms.trl_hooks import TrainerClass
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.rewards.kinds.teacher import SHARED, EngineOfTeacher, TeacherTerm
from mortal_steps.rewards.token_logprobs import TokenLogprobs
from mortal_steps.types import Rollout

DECIDED = frozenset({"logprobs_mode", "max_logprobs", "worker_extension_cls"})
"""Options of vLLM that a user does not choose."""


class ServedTeacher(TeacherConfig):
    """`[algorithm.teachers.NAME]`: a model that reward workers run. Its tokens are the
    student's."""

    engine: EngineOfTeacher = SHARED
    """What computes it. `vllm` runs under the interpreter of the rollout workers
    (`compute.local.rollout.python`)."""
    engine_options: Options = Field(default_factory=dict)
    """Additional keyword arguments of vLLM's `LLM(...)`, such as `tensor_parallel_size`."""
    device: str = "cpu"
    """Where it computes, such as `cuda`; the CPU by default, so that it takes no room from actor
    and rollout workers."""
    batch_size: int = Field(1, ge=1)
    """Completions in one forward pass. Padding changes the last bits of what it says, so with 1
    nothing depends on the other completions of a shard."""
    threads: int = Field(1, ge=1)
    """CPU threads, which decide how matrix kernels round."""


class Opd(TrlAlgorithm, extra="forbid"):
    """On-policy distillation from log-probabilities of tokens; its other options are those of
    `[training]` and `[rollout]` that TRL's ServerDistillationConfig has."""

    trl_config: ClassVar[str] = "ServerDistillationConfig"
    learns_from_rewards: ClassVar[bool] = False
    type: Annotated[str, STATE] = "opd"
    teachers: dict[str, Annotated[ServedTeacher, BeforeValidator(by_name)]] = Field(min_length=1)
    """The models that are learned from, each a table `[algorithm.teachers.NAME]`, or the name of a
    model on the Hub or its folder."""
    teacher_column: str | None = None
    """Column of the dataset that holds the NAME of the teacher of each row. Needed where there are
    several."""
    beta: float = Field(1.0, ge=0, le=1)
    """Which divergence is made small, at each token of a completion: 0 is the forward KL over the
    teacher's likeliest tokens, 1 the reverse KL at the sampled token, and what is between them a
    generalized Jensen-Shannon divergence over both."""
    loss_top_k: int = Field(1, ge=1)
    """How many of its likeliest tokens the teacher names at each position. More than 1 only with
    `beta = 0`, as in TRL."""
    loss_add_tail: bool = True
    """Count all other tokens as one more, with the probability that is left. Otherwise the named
    ones are taken for all there are."""

    @model_validator(mode="after")
    def _each_row_has_a_teacher(self) -> Self:
        for name in self.teachers:
            if not re.fullmatch(NAME, name):
                raise ValueError(
                    f"teachers.{name}: a teacher's name has letters, digits, `.`, `_` and `-`"
                )
        if len(self.teachers) > 1 and self.teacher_column is None:
            raise ValueError(
                f"teacher_column: there are {len(self.teachers)} teachers; name the column of the "
                f"dataset that says which of {', '.join(self.teachers)} teaches a row"
            )
        return self

    @model_validator(mode="after")
    def _options_are_of_an_engine(self) -> Self:
        for name, each in self.teachers.items():
            if each.engine_options and each.engine == "transformers":
                raise ValueError(
                    f"teachers.{name}.engine_options are for engine = 'vllm', and this teacher has "
                    "'transformers'; leave them out, or set engine"
                )
            for option in DECIDED.intersection(each.engine_options):
                raise ValueError(
                    f"teachers.{name}.engine_options.{option} is set by MORTAL, which needs it for "
                    "the teacher's log-probabilities; leave it out"
                )
            longest = each.engine_options.get("max_model_len", 2)
            if not isinstance(longest, int) or longest < 2:
                raise ValueError(
                    f"teachers.{name}.engine_options.max_model_len = {longest!r} is no number of "
                    "tokens; write how many a prompt and its completion may have, and one more"
                )
        return self

    @model_validator(mode="after")
    def _there_is_such_a_divergence(self) -> Self:
        if self.beta > 0 and self.loss_top_k > 1:
            raise ValueError(
                f"loss_top_k = {self.loss_top_k}: TRL has a loss over several tokens of the "
                f"teacher's for beta = 0 alone, and beta is {self.beta:g}; leave loss_top_k out, "
                "or set beta = 0"
            )
        if not self.loss_add_tail and self.loss_top_k == 1 and self.beta in (0, 1):
            raise ValueError(
                "loss_add_tail = false: with one token and no others, every divergence is 0 and "
                "nothing is learned; leave it out, or set beta = 0 and raise loss_top_k"
            )
        return self

    def pinned(self, commit_of: Callable[[str, ModelConfig], str | None]) -> Self:
        teachers = {}
        for name, each in self.teachers.items():
            commit = commit_of(f"algorithm.teachers.{name}", each.model) or each.revision
            teachers[name] = each.model_copy(update={"revision": commit})
        return self.model_copy(update={"teachers": teachers})

    def teacher_terms(self, temperature: float) -> tuple[RewardTerm, ...]:
        return tuple(
            TeacherTerm(
                name=f"teacher-{name}",
                teacher=name,
                model=each.model,
                engine=each.engine,
                engine_options=each.engine_options,
                device=each.device,
                batch_size=each.batch_size,
                threads=each.threads,
                temperature=temperature,
                top_k=self.loss_top_k,
                column=self.teacher_column,
            )
            for name, each in self.teachers.items()
        )

    def check(self, plan: TrainerPlan) -> tuple[str, ...]:
        idle = super().check(plan)
        for name, each in self.teachers.items():
            called = f"algorithm.teachers.{name}"
            if not check_tokens(plan.model, each.model, called=called):
                check_sizes(
                    *(plan.model, each.model),
                    called=called,
                    remedy="It has no tokenizer; choose a teacher with the student's tokens",
                )
        return idle

    def trainer_class(self) -> TrainerClass:
        """Return the trainer, which is derived from TRL's ServerDistillationTrainer."""
        from mortal_steps.policy.algorithms.stepping.recorded_teachers import (
            RecordedTeachersTrainer,
        )

        return RecordedTeachersTrainer

    def options(self) -> dict[str, Any]:
        return {
            "beta": self.beta,
            "loss_top_k": self.loss_top_k,
            "loss_add_tail": self.loss_add_tail,
            "teacher_model_server_url": "records of the run",  # TRL wants one, and nobody asks it
        }

    def made_up(self, rollout: Rollout) -> Rollout:
        length = len(rollout.completion.token_ids)
        said = TokenLogprobs(
            sampled_T=numpy.full(length, -1.6),
            top_TK=numpy.full((length, self.loss_top_k), -1.6),
            top_ids_TK=numpy.zeros((length, self.loss_top_k)),
        )
        return dataclasses.replace(rollout, teacher_logprobs=said.packed())

    def check_built(self, training: TrainingConfig, rollout: RolloutConfig, built: Any) -> None:
        """See `check_no_rewards`."""
        check_no_rewards(training, self.type)
