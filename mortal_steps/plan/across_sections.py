"""What the sections of a configuration ask of each other, and what follows from several. Each check
raises `ValueError`, which names the key, its value and the remedy."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mortal_steps.config.algorithm import AlgorithmConfig
from mortal_steps.config.compute import ComputeConfig
from mortal_steps.config.data import DataConfig
from mortal_steps.config.environment import EnvironmentConfig, check_beside_environment
from mortal_steps.config.evaluation import EvaluationConfig
from mortal_steps.config.model import ModelConfig
from mortal_steps.config.rewards import RewardsConfig
from mortal_steps.config.rollout import RolloutConfig
from mortal_steps.config.selection import SelectionConfig
from mortal_steps.config.training import TrainingConfig
from mortal_steps.config.until import UntilConfig
from mortal_steps.extensions import nearest
from mortal_steps.orchestration.batch_sources.table import GENERATE
from mortal_steps.scores import reward_names
from mortal_steps.selection.table import ALL

FEWEST_TO_COMPARE = 2
"""Completions of a prompt of which one is better than another."""


def with_defaults_of(kind: type[AlgorithmConfig], values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the values of a configuration with the defaults that an algorithm has: the batch
    source that it learns from and, where it compares no completions, one for each prompt."""
    defaults = dict[str, dict[str, Any]]()
    if kind.source is not None:
        defaults["rollout"] = {"source": kind.source}
    if not kind.learns_from_rewards:
        defaults["training"] = {"num_generations": 1}
    for table, keys in defaults.items():
        given = values.get(table, {})
        if isinstance(given, Mapping):
            values = {**values, table: {**keys, **given}}
    return values


def check_prompts(algorithm: AlgorithmConfig, data: DataConfig) -> None:
    """Refuse to drop prompts that are sampled from. Rows that are learned may do without, unless a
    column is named for them."""
    column = data.prompt_column
    if column in data.drop_columns and (column != "prompt" or not algorithm.judges_by_loss):
        remedy = ", or leave data.prompt_column out" if algorithm.judges_by_loss else ""
        raise ValueError(
            f"data.drop_columns contains {column!r}, the prompt_column; take it out{remedy}"
        )


def check_completions_to_compare(algorithm: AlgorithmConfig, training: TrainingConfig) -> None:
    number = training.num_generations
    compares = algorithm.learns_from_rewards and not algorithm.judges_by_loss
    if number < FEWEST_TO_COMPARE and compares:
        raise ValueError(
            f"training.num_generations = {number}: algorithm.type = {algorithm.type!r} "
            f"compares completions of one prompt; choose {FEWEST_TO_COMPARE} or more"
        )


def check_source(algorithm: AlgorithmConfig, rollout: RolloutConfig) -> None:
    """Refuse a batch source that supplies something else than the algorithm learns from."""
    wanted = algorithm.source
    if wanted is not None and rollout.source != wanted:
        raise ValueError(
            f"rollout.source = {rollout.source!r}: algorithm.type = "
            f"{algorithm.type!r} learns from {wanted!r}; leave rollout.source out"
        )


def check_selection(
    selection: SelectionConfig,
    algorithm: AlgorithmConfig,
    rollout: RolloutConfig,
    training: TrainingConfig,
) -> None:
    if selection.type != ALL and rollout.source != GENERATE:
        raise ValueError(
            f"selection.type = {selection.type!r} chooses among the groups that the run's "
            f"own workers sample, and rollout.source is {rollout.source!r}; leave "
            "[selection] out"
        )
    if selection.type != ALL and not algorithm.learns_from_rewards:
        raise ValueError(
            f"selection.type = {selection.type!r} chooses groups by how the rewards of "
            f"their completions differ, and algorithm.type = {algorithm.type!r} learns "
            "without rewards, from each completion; leave [selection] out"
        )
    selection.check(training)


def check_teachers(
    asked: RewardsConfig | None, algorithm: AlgorithmConfig, temperature: float
) -> None:
    """Refuse a reward with the name of a teacher, and to leave out what teachers fail on: it would
    be recorded that they say nothing of a completion, which nobody can learn from."""
    names = reward_names(asked) if asked else ()
    teachers = algorithm.teacher_terms(temperature)
    for teacher in teachers:
        if names.count(str(teacher.name)) > 1:
            raise ValueError(
                f"rewards: a reward has the name {teacher.name!r}, under which what a teacher "
                "of algorithm.teachers says is recorded; give it another `name`"
            )
    if teachers and asked and asked.on_error == "mask":
        raise ValueError(
            f"rewards.on_error = 'mask': with algorithm.type = {algorithm.type!r}, each completion "
            "is learned from what its teacher says, and none can be left out; leave it out"
        )


def check_trl_options(training: TrainingConfig, decided: Mapping[str, str]) -> None:
    """Refuse options of TRL that have another place, as `decided` says."""
    for option in training.trl:
        if option in decided:
            raise ValueError(f"training.trl.{option} is set by {decided[option]}; use that")


def scores_of_evaluations(
    usual: RewardsConfig, evaluation: EvaluationConfig, data: DataConfig
) -> list[str]:
    """Return the names of the scores of evaluations, those of sets last; `usual` scores the sets
    that have no rewards of their own."""
    own = evaluation.problem_sets
    rewards = {name: own[name].rewards(usual) if name in own else usual for name in data.eval_sets}
    names = [
        f"eval_{name}_{score}"
        for name, each in rewards.items()
        for score in ("reward", *(f"rewards/{one}/mean" for one in reward_names(each)))
    ]
    names += [f"eval_{name}_reward" for name in evaluation.harnesses]
    return ["reward", *reward_names(usual), *names]


def pinned_evaluation(
    evaluation: EvaluationConfig,
    usual: RewardsConfig,
    with_own: Sequence[str],
    commit_of: Callable[[ModelConfig], str | None],
) -> EvaluationConfig:
    """Return `[evaluation]` with the commits of its reward models: those of `functions`, which make
    the `usual` rewards, and of the sets that have rewards of their own, in this order."""
    judging = dict[str, Any]()
    if evaluation.functions is not None:
        judging["functions"] = usual.pinned(commit_of).functions
    if with_own:
        pinned = {name: evaluation.problem_sets[name].pinned(commit_of) for name in with_own}
        judging["sets"] = {name: pinned.get(name, each) for name, each in evaluation.sets.items()}
    return evaluation.model_copy(update=judging) if judging else evaluation


def check_until(
    until: UntilConfig,
    algorithm: AlgorithmConfig,
    evaluation: EvaluationConfig,
    scores: Sequence[str],
) -> None:
    """Refuse a goal that no evaluation can show; `scores` are those that evaluations have."""
    if until.by == "interval" and algorithm.judges_by_loss:
        raise ValueError(
            'training.until.by = "interval": the loss on held-out rows has no interval; leave '
            "it out, and the goal has to be reached in several evaluations in a row"
        )
    free = tuple(f"eval_{name}_" for name in evaluation.harnesses)
    known = until.metric in scores or (free and until.metric.startswith(free))
    if until.metric and not algorithm.judges_by_loss and not known:
        near = nearest(until.metric, scores, cutoff=0.6)
        raise ValueError(
            f"training.until.metric = {until.metric!r} is no score of the evaluations, which "
            f"have {', '.join(scores)}{f'; did you mean {near}?' if near else ''}"
        )


def check_environment(
    environment: EnvironmentConfig,
    algorithm: AlgorithmConfig,
    rollout: RolloutConfig,
    compute: ComputeConfig,
) -> None:
    """Refuse what environments do without."""
    if environment.is_used:
        check_beside_environment(
            algorithm=algorithm.type,
            stop=rollout.stop,
            episodes=rollout.episodes,
            source=rollout.source,
            python=environment.python,
            in_containers=not compute.place.shares_files and compute.away_from_rollouts is None,
        )


def check_quantization(model: ModelConfig, training: TrainingConfig) -> None:
    if model.quantization and not training.use_lora:
        raise ValueError(
            "model.quantization: quantized weights are not trained themselves; set "
            "training.use_lora = true, or leave it out"
        )


def check_single_node(compute: ComputeConfig, num_rollout_workers: int) -> None:
    if compute.mode == "single_node" and num_rollout_workers > 1:
        raise ValueError(
            f"rollout.num_rollout_workers = {num_rollout_workers}, and compute.mode = "
            "'single_node' has one; leave it out, or set compute.mode = 'distributed'"
        )
