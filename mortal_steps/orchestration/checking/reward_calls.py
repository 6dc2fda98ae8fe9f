"""Calls of every reward function with a made-up completion, before a run begins: in a process of
its own, which ends with the check."""

import dataclasses
import logging
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import call_once
from mortal_steps.config import (
    EnvironmentConfig,
    EvaluationConfig,
    ModalConfig,
    RewardsConfig,
)
from mortal_steps.config.rewards import FORMS
from mortal_steps.config.until import UntilConfig
from mortal_steps.data.held_out import EVAL
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.data_lines import Scores
from mortal_steps.rewards.code_execution.environment import COLUMNS
from mortal_steps.rewards.kinds.judge import JudgeTerm
from mortal_steps.rewards.plan import ScoringPlan
from mortal_steps.types import Problem

logger = logging.getLogger(__name__)

Sets = Mapping[str, Sequence[Problem]]
"""The first problems of sets with settings of their own, by name."""

DRY_RUN_PROBLEMS = 2
"""Problems of which completions are made up, and episodes begun."""


def sets_of(
    evaluation: EvaluationConfig, held_out: Sequence[Problem]
) -> dict[str, Sequence[Problem]]:
    """Return the first problems of each set with settings of its own, without the columns that only
    others have."""
    found: dict[str, Sequence[Problem]] = {}
    for name in evaluation.problem_sets:
        its = [each for each in held_out if each.id.rpartition("-")[0] == f"{EVAL}-{name}"]
        known = {key for each in its for key, value in each.columns.items() if value is not None}
        found[name] = [
            dataclasses.replace(
                each, columns={key: value for key, value in each.columns.items() if key in known}
            )
            for each in its[:DRY_RUN_PROBLEMS]
        ]
    return found


def check_rewards(
    worker: WorkerSpec,
    problems: Sequence[Problem],
    sets: Sets = MappingProxyType({}),
) -> Scores:
    """Import every reward function, let it score a made-up completion, and return its scores; those
    of the `sets` of evaluations score their problems."""
    plan: ScoringPlan = worker.kwargs["plan"]
    sample = problems[:DRY_RUN_PROBLEMS] if plan.rewards.dry_run else []
    if plan.compute.scores_in_a_container:
        plan, sets = called_here(plan, sets)
        worker = dataclasses.replace(worker, kwargs={**worker.kwargs, "plan": plan})
    if plan.scores_sets_alone and not plan.set_rewards:
        return {}
    tried = dict(sets) if plan.rewards.dry_run else dict.fromkeys(sets, ())
    scores: Scores = call_once(worker, "dry_run", problems=sample, sets=tried)
    return scores


def called_here(plan: ScoringPlan, sets: Sets) -> tuple[ScoringPlan, Sets]:
    """Return the plan with the rewards that this machine can call, and those of the `sets` of
    evaluations that they score. Raises `ConfigError` if a reward needs a GPU and the container for
    rewards has none."""
    modal = plan.compute.modal
    rewards = _here("[[rewards.terms]]", plan.rewards, modal)
    judging = rewards
    if plan.eval_rewards is not None:
        judging = _here("[[rewards.terms]]", plan.eval_rewards, modal)
    own = {
        name: _here(f"[[evaluation.sets.{name}.terms]]", each, modal)
        for name, each in plan.set_rewards.items()
    }
    usual = rewards or judging
    here = dataclasses.replace(
        plan,
        rewards=usual or plan.rewards,
        eval_rewards=judging if rewards and plan.eval_rewards else None,
        set_rewards={name: each for name, each in own.items() if each},
        scores_sets_alone=plan.scores_sets_alone or usual is None,
    )
    return here, {name: its for name, its in sets.items() if own.get(name, judging)}


def _here(table: str, rewards: RewardsConfig, modal: ModalConfig) -> RewardsConfig | None:
    """Return the rewards that this machine can call; None if it can call none."""
    on_gpus = [term for term in rewards.terms if term.needs_gpu]
    if not on_gpus:
        return rewards
    if modal.reward_gpu is None:
        raise ConfigError(
            f"{table}: {on_gpus[0].full_name} computes on a GPU, and the container for "
            "rewards has none; set compute.modal.reward_gpu, for example to 'L4'"
        )
    here = tuple(term for term in rewards.terms if term not in on_gpus)
    return rewards.model_copy(update={"terms": here}) if here else None


def check_something_scores(
    rewards: RewardsConfig, environment: EnvironmentConfig, problem: Problem
) -> None:
    """Raise `ConfigError` unless rewards are named or the problem has test cases."""
    if rewards.are_named or any(name in problem.columns for name in COLUMNS):
        return
    raise ConfigError(
        "[rewards] names no reward, so completions would run as programs against the dataset's "
        f"test cases; but it has no column {' or '.join(COLUMNS)} (there are "
        f"{', '.join(sorted(problem.columns)) or 'none beside the prompt'}). "
        f"{_own_reward(environment)}Write "
        f"rewards.functions, each as {FORMS}; or name the column with test cases in an entry of "
        '[[rewards.terms]] with type = "sandbox"'
    )


def check_scored_until(until: UntilConfig, algorithm: str, *, scored: bool) -> None:
    """Raise `ConfigError` for a number of scored completions after which a run is to end, where
    none are `scored` here."""
    if until.max_rollouts is not None and not scored:
        raise ConfigError(
            f"training.until.max_rollouts = {until.max_rollouts} counts completions that were "
            f"sampled and have a reward, of which a run with algorithm.type = {algorithm!r} as "
            "configured has none; set training.until.max_tokens or training.max_steps"
        )


def warn_of_no_prices(
    until: UntilConfig, rewards: Iterable[RewardsConfig], *, place_costs: bool
) -> None:
    """Warn of a number of dollars after which a run is to end, where nothing has a price that the
    configuration tells of; a judge in a user's own code may have one."""
    terms = [term for each in rewards for term in each.all_terms]
    priced = any(isinstance(term, JudgeTerm) and term.prices.are_known for term in terms)
    if until.max_dollars is not None and not place_costs and not priced:
        logger.warning(
            "training.until.max_dollars = %g: no judge has `prices`, and only workers on Modal "
            "have a price, so no dollars are counted and this limit never ends the run; give "
            "judges their prices, or set training.until.max_tokens or max_hours",
            until.max_dollars,
        )


def _own_reward(environment: EnvironmentConfig) -> str:
    if environment.asks:
        return "Its environment gives no reward either: `-> float` says that an agent returns it. "
    if environment.factory is None:
        return ""
    return "No environment defines `get_reward` either: define it, or name a reward. "
