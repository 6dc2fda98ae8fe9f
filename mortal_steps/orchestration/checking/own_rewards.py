"""What environments bring themselves, known before a run begins: rewards, such as `get_reward` of a
class, and rows."""

import shutil
from collections.abc import Iterable, Sequence
from typing import Any

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import call_once
from mortal_steps.config import RewardsConfig
from mortal_steps.data.sources import OwnRows, Row
from mortal_steps.environments.messages import Description
from mortal_steps.environments.plan import EnvironmentPlan
from mortal_steps.errors import ConfigError
from mortal_steps.rewards.kinds.get_reward import GetReward


def with_described_rewards(plan: EnvironmentPlan) -> RewardsConfig:
    """Return the rewards with those that the environments give themselves. Raises what
    `Describer.describe` raises, and `ConfigError` for a `get_reward` that none has."""
    if not plan.environment.is_used:
        return plan.rewards
    return _with_offered(plan.rewards, _classes_offered(plan))


def _with_offered(rewards: RewardsConfig, offered: Sequence[str | None]) -> RewardsConfig:
    for name in classes_in(rewards):
        if name not in offered:
            known = ", ".join(repr(each) for each in offered if each) or "none"
            raise ConfigError(
                f"[[rewards.terms]] type = 'get_reward', environment = {name!r}: no environment is "
                f"of a class of that name with a `get_reward`; there are: {known}"
            )
    return with_own_rewards(rewards, offered)


def with_other_environments(plan: EnvironmentPlan, before: RewardsConfig) -> RewardsConfig:
    """Return the rewards of a fork with those that its environments give in place of those that
    the parent's gave, whose rewards are `before`; raises what `with_described_rewards` raises."""
    offered = _classes_offered(plan) if plan.environment.is_used else []
    gone = set(classes_in(before)).difference(offered)
    kept = tuple(
        term
        for term in plan.rewards.terms
        if not (isinstance(term, GetReward) and term.environment in gone)
    )
    return _with_offered(plan.rewards.model_copy(update={"terms": kept}), offered)


def _classes_offered(plan: EnvironmentPlan) -> list[str | None]:
    return [each.reward for each in describe(plan).environments.values()]


def describe(plan: EnvironmentPlan) -> Description:
    """Return what tools and environments offer, as the rollout workers' interpreter sees them."""
    spec = environment_worker(plan, "mortal_steps.environments.processes.host:Describer")
    found: Description = call_once(spec, "describe")
    return found


def own_rows(plan: EnvironmentPlan) -> OwnRows | None:
    """Return what reads the environment's own rows, as `RowReader.read`; None without any."""
    if not plan.environment.has_rows:
        return None

    def read(held_out: bool, limit: int | None) -> Iterable[Row]:
        spec = environment_worker(plan, "mortal_steps.environments.rows:RowReader")
        found: list[Row] = call_once(spec, "read", held_out=held_out, limit=limit)
        return found

    return read


def environment_worker(plan: EnvironmentPlan, factory: str, **settings: Any) -> WorkerSpec:
    """Return a worker that has the run's environments, in the rollout workers' interpreter."""
    where = {"passed_on": plan.passed_on, "modal": plan.modal}
    return WorkerSpec(
        factory=factory,
        kwargs={"environment": plan.environment, **where, **settings},
        python=plan.python if plan.python and shutil.which(plan.python) else None,
        env=plan.env,
    )


def with_own_rewards(rewards: RewardsConfig, classes: Iterable[str | None]) -> RewardsConfig:
    """Return the rewards, and after those that are named the ones that environments of these
    classes give themselves, each of weight 1; None has none."""
    own = classes_in(rewards)
    missing = [name for name in dict.fromkeys(classes) if name is not None and name not in own]
    if not missing:
        return rewards
    named = rewards.all_terms if rewards.are_named else ()
    terms = (*named, *(GetReward(environment=name) for name in missing))
    return rewards.model_copy(update={"terms": terms, "functions": (), "weights": None})


def classes_in(rewards: RewardsConfig) -> list[str]:
    return [term.environment for term in rewards.terms if isinstance(term, GetReward)]
