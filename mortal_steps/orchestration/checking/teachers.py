"""What is checked of a run that learns from a teacher in the actor, or from teachers that reward
workers run: models, rows, lengths, records."""

from collections.abc import Sequence
from pathlib import Path

from mortal_steps.compute.interpreters import check_interpreter, lacks, rollout_interpreter
from mortal_steps.config import (
    AlgorithmConfig,
    ComputeConfig,
    DataConfig,
    ModelConfig,
    RewardsConfig,
)
from mortal_steps.config.algorithm import TEACHER
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.extensions import nearest
from mortal_steps.hosts.answers import LARGEST_ANSWER
from mortal_steps.models.hub import is_hub_model
from mortal_steps.models.local_folder import check_folder, check_listed_weights
from mortal_steps.orchestration.batch_sources.table import GENERATE
from mortal_steps.orchestration.checking.forecast import ForecastPlan
from mortal_steps.orchestration.checking.resolve_defaults import find_context
from mortal_steps.policy.algorithms.shared_tokens import check_sizes
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.token_logprobs import bytes_per_token
from mortal_steps.rollout.engines.table import ENGINES
from mortal_steps.types import Problem

IN_BASE64 = 4 / 3


def check_teacher(teacher: ModelConfig, student: ModelConfig, data: DataConfig) -> None:
    """Raise `ModelError` for a teacher that is no whole model, and `ConfigError` for one with
    another vocabulary than the student's, as far as it is known here, or without prompts."""
    _check_prompts(data)
    _check_whole(teacher, TEACHER)
    # Where they are not known, TRL compares them in the actor.
    remedy = (
        "Distillation compares their distributions over all tokens; choose a teacher with the "
        "student's vocabulary"
    )
    check_sizes(student, teacher, called=TEACHER, remedy=remedy)


def check_judged(rewards: RewardsConfig, algorithm: str) -> None:
    """Raise `ConfigError` for held-out problems that nothing scores."""
    if not rewards.are_named:
        raise ConfigError(
            f"problems are held out, and nothing scores them: algorithm.type = {algorithm!r} needs "
            "no rewards to learn. Name some for evaluations in evaluation.functions, or leave "
            "data.eval_source, data.eval_samples, data.eval_split and data.eval_sets out"
        )


def _check_prompts(data: DataConfig) -> None:
    if not data.source:
        raise ConfigError(
            "data.source names no dataset, and the student learns on completions of its prompts; "
            "name one with --dataset"
        )


def _check_whole(teacher: ModelConfig, called: str) -> None:
    if not is_hub_model(teacher):
        folder = Path(teacher.name_or_path)
        check_folder(folder, called=called, whole=False)
        check_listed_weights(folder, called=called)


def _teachers_of(algorithm: AlgorithmConfig) -> list[TeacherTerm]:
    """Return the teachers in reward workers; nothing that is checked depends on a temperature."""
    terms = algorithm.teacher_terms(1.0)
    return [term for term in terms if isinstance(term, TeacherTerm)]


def check_teachers(plan: ForecastPlan, data: DataConfig) -> None:
    """Raise `ModelError` for a teacher that is no whole model, and `ConfigError` for what they
    cannot teach with."""
    algorithm, source = plan.trainer.algorithm, plan.trainer.rollout.source
    teachers = _teachers_of(algorithm)
    if not teachers:
        return
    named = f"algorithm.type = {algorithm.type!r}"
    _check_prompts(data)
    if source != GENERATE:
        raise ConfigError(
            f"rollout.source = {source!r}: with {named}, teachers speak of what the "
            "run's own workers sample; leave it out"
        )
    for each in teachers:
        _check_whole(each.model, f"algorithm.teachers.{each.teacher}")
        _check_interpreter(plan.compute, each)
    _check_answers(plan, teachers[0].top_k)


def _check_interpreter(compute: ComputeConfig, teacher: TeacherTerm) -> None:
    """Raise `ConfigError` where the interpreter that a teacher runs under on this machine has no
    engine for it; images have theirs."""
    kind = ENGINES[teacher.engine]
    if kind.needs is None or compute.scores_in_a_container:
        return
    check_interpreter(compute, "rollout")
    python = rollout_interpreter(compute)
    if lacks(python, kind.needs):
        raise ConfigError(
            f"algorithm.teachers.{teacher.teacher}.engine = {teacher.engine!r}, but {python} has "
            f"no {kind.needs}; set compute.local.rollout.python to an interpreter with it "
            f"({kind.install}), or leave engine out"
        )


def _check_answers(plan: ForecastPlan, top_k: int) -> None:
    """Raise `ConfigError` if what is said of a shard may be more than one answer can hold."""
    completions = plan.problems_per_shard * plan.trainer.training.num_generations
    tokens = completions * plan.max_tokens
    size = int(tokens * bytes_per_token(top_k) * IN_BASE64)
    if size <= LARGEST_ANSWER:
        return
    raise ConfigError(
        f"algorithm.loss_top_k = {top_k}: what a teacher says of a shard may take "
        f"{size / 2**20:,.0f} MiB, and {LARGEST_ANSWER / 2**20:,.0f} MiB are the most; raise "
        f"rollout.num_shards (now {plan.num_shards}), or lower loss_top_k or rollout.max_tokens"
    )


def check_taught(algorithm: AlgorithmConfig, rows: Sequence[Problem]) -> None:
    """Raise `DataError` for a row whose teacher is not there."""
    teachers = {each.teacher: each.column for each in _teachers_of(algorithm)}
    column = next(iter(teachers.values()), None)
    if column is None:
        return
    for row in rows:
        if column not in row.columns:
            raise DataError(
                f"algorithm.teacher_column = {column!r}: {row.id} has no such column; it has "
                f"{', '.join(row.columns) or 'none beside the prompt'}"
            )
        name = row.columns[column]
        if name not in teachers:
            near = nearest(str(name), teachers, cutoff=0.6)
            hint = f"; did you mean {near!r}?" if near else ""
            raise DataError(
                f"algorithm.teacher_column = {column!r}: {name!r} of {row.id} is none of the "
                f"teachers {', '.join(teachers)}{hint}"
            )


def check_context(plan: ForecastPlan, longest: int) -> None:
    """Raise `ConfigError` for a teacher that takes fewer tokens than the `longest` prompt and its
    completion may have."""
    for each in _teachers_of(plan.trainer.algorithm):
        takes = each.longest(find_context(each.model))
        if takes is not None and longest + plan.max_tokens > takes:
            raise ConfigError(
                f"algorithm.teachers.{each.teacher} = {each.model.name_or_path!r} takes {takes} "
                f"tokens, and the longest prompt has {longest}, its completion up to "
                f"{plan.max_tokens} (rollout.max_tokens); lower rollout.max_tokens or "
                f"model.max_model_len, or {each.how_to_take_more}"
            )
