"""The models on the hub that score or teach, at the commits with which a run begins.

What `commit_of` returns is the commit of a model's revision; None leaves the model as it is.
"""

from collections.abc import Callable, Sequence
from typing import Any

from mortal_steps.config import EvaluationConfig, ModelConfig, RewardsConfig
from mortal_steps.config.algorithm import TEACHER, AlgorithmConfig
from mortal_steps.models.hub import find_commit
from mortal_steps.plan.run_config import RunConfig


def pinned_now(config: RunConfig) -> RunConfig:
    """Return the configuration with the commits of now; raises as `find_commit`."""
    config = with_reward_commits(config, _find_reward_commit)
    config = with_teacher_at(config, _find_teacher_commit(config.algorithm))
    return with_teacher_commits(config, _find_commit_of_teacher)


def pinned_as(config: RunConfig, begun: RunConfig) -> RunConfig:
    """Return the configuration with the commits of a run that has `begun`, where it names the same
    models."""
    models = iter(_reward_models(begun))

    def commit_of(model: ModelConfig) -> str | None:
        """Return the commit of the same term's model. One model may score at two revisions."""
        return _commit_before(model, next(models, None))

    terms = begun.algorithm.teacher_terms(begun.rollout.temperature)
    teachers = {term.name: term.source for term in terms}

    def commit_of_teacher(name: str, model: ModelConfig) -> str | None:
        return _commit_before(model, teachers.get(f"teacher-{name}"))

    config = with_reward_commits(config, commit_of)
    config = with_teacher_at(config, _teacher_commit_of(config.algorithm, begun.algorithm))
    return with_teacher_commits(config, commit_of_teacher)


def _reward_models(config: RunConfig) -> list[ModelConfig]:
    """Return the models that score: training's first, last those of sets, by the sets' names."""
    apart, own = config.evaluation.functions is not None, config.set_rewards
    scoring = [config.rewards, *([config.eval_rewards] if apart else [])]
    scoring += [own[name] for name in sorted(own)]
    return [term.source for each in scoring for term in each.all_terms if term.source]


def with_reward_commits(
    config: RunConfig, commit_of: Callable[[ModelConfig], str | None]
) -> RunConfig:
    """Return the same with hub reward models pinned, in the order of `_reward_models`; see
    `RewardsConfig.pinned`."""
    changed: dict[str, Any] = {"rewards": config.rewards.pinned(commit_of)}
    judging = config.eval_rewards, sorted(config.set_rewards)
    evaluation = _pinned_evaluation(config.evaluation, *judging, commit_of)
    if evaluation is not config.evaluation:
        changed["evaluation"] = evaluation
    return config.model_copy(update=changed)


def _pinned_evaluation(
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


def with_teacher_at(config: RunConfig, commit: str | None) -> RunConfig:
    """Return the same with the commit of a teacher on the hub; None: as it is."""
    if commit is None:
        return config
    return config.model_copy(update={"algorithm": config.algorithm.with_teacher_at(commit)})


def with_teacher_commits(
    config: RunConfig, commit_of: Callable[[str, ModelConfig], str | None]
) -> RunConfig:
    """Return the same with the commits of teachers that reward workers run."""
    return config.model_copy(update={"algorithm": config.algorithm.pinned(commit_of)})


def _find_reward_commit(model: ModelConfig) -> str | None:
    """Return the commit of a reward model's revision now; raises as `find_commit`."""
    return find_commit(model, called="rewards: model", revised="rewards: revision")


def _find_teacher_commit(algorithm: AlgorithmConfig) -> str | None:
    """Return the commit of a teacher's revision now; raises as `find_commit`. None without one."""
    teacher = algorithm.teacher_model
    if teacher is None:
        return None
    return find_commit(teacher, called=TEACHER, revised="algorithm.teacher.revision")


def _find_commit_of_teacher(name: str, model: ModelConfig) -> str | None:
    """Return the commit now of a teacher that reward workers run; raises as `find_commit`."""
    key = f"algorithm.teachers.{name}"
    return find_commit(model, called=f"{key}.name_or_path", revised=f"{key}.revision")


def _teacher_commit_of(algorithm: AlgorithmConfig, begun: AlgorithmConfig) -> str | None:
    """Return the commit with which a run has begun, of the teacher that `algorithm` names."""
    teacher = algorithm.teacher_model
    return _commit_before(teacher, begun.teacher_model) if teacher else None


def _commit_before(model: ModelConfig, before: ModelConfig | None) -> str | None:
    """Return the commit with which a run has begun, if the model is still the same."""
    if before is None or before.name_or_path != model.name_or_path or model.is_pinned:
        return None
    return before.revision if before.is_pinned else None
