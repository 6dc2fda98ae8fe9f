"""What environments bring themselves, known before a run begins: rewards, such as `get_reward` of a
class, and rows."""

import shutil
from collections.abc import Iterable, Sequence
from typing import Any

from mortal_steps.compute.base import WorkerSpec
from mortal_steps.compute.local import call_once
from mortal_steps.config import RewardsConfig, RunConfig
from mortal_steps.data.sources import OwnRows, Row
from mortal_steps.environments.messages import Description
from mortal_steps.errors import ConfigError
from mortal_steps.rewards.kinds.get_reward import GetReward


def with_described_rewards(config: RunConfig) -> RunConfig:
    """Return the configuration with its environments' own rewards. Raises what `Describer.describe`
    raises, and `ConfigError` for a `get_reward` that none has."""
    if not config.environment.is_used:
        return config
    return _with_offered(config, _classes_offered(config))


def _with_offered(config: RunConfig, offered: Sequence[str | None]) -> RunConfig:
    for name in classes_in(config.rewards):
        if name not in offered:
            known = ", ".join(repr(each) for each in offered if each) or "none"
            raise ConfigError(
                f"[[rewards.terms]] type = 'get_reward', environment = {name!r}: no environment is "
                f"of a class of that name with a `get_reward`; there are: {known}"
            )
    return with_own_rewards(config, offered)


def with_other_environments(config: RunConfig, before: RunConfig) -> RunConfig:
    """Return the configuration of a fork with the rewards of its environments in place of those of
    the run `before`, if that had others; raises what `with_described_rewards` raises."""
    if config.environment == before.environment:
        return config
    offered = _classes_offered(config) if config.environment.is_used else []
    gone = set(classes_in(before.rewards)).difference(offered)
    kept = tuple(
        term
        for term in config.rewards.terms
        if not (isinstance(term, GetReward) and term.environment in gone)
    )
    rewards = config.rewards.model_copy(update={"terms": kept})
    return _with_offered(config.model_copy(update={"rewards": rewards}), offered)


def _classes_offered(config: RunConfig) -> list[str | None]:
    return [each.reward for each in describe(config).environments.values()]


def describe(config: RunConfig) -> Description:
    """Return what tools and environments offer, as the rollout workers' interpreter sees them."""
    spec = environment_worker(config, "mortal_steps.environments.processes.host:Describer")
    found: Description = call_once(spec, "describe")
    return found


def own_rows(config: RunConfig) -> OwnRows | None:
    """Return what reads the environment's own rows, as `RowReader.read`; None without any."""
    if not config.environment.has_rows:
        return None

    def read(held_out: bool, limit: int | None) -> Iterable[Row]:
        spec = environment_worker(config, "mortal_steps.environments.rows:RowReader")
        found: list[Row] = call_once(spec, "read", held_out=held_out, limit=limit)
        return found

    return read


def environment_worker(config: RunConfig, factory: str, **settings: Any) -> WorkerSpec:
    """Return a worker that has the run's environments, in the rollout workers' interpreter."""
    local, python = config.compute.local.rollout, None
    if config.compute.place.shares_files and local.python and shutil.which(local.python):
        python = local.python
    where = {"passed_on": config.seen_by_environments, "modal": config.compute.away_from_rollouts}
    return WorkerSpec(
        factory=factory,
        kwargs={"environment": config.environment, **where, **settings},
        python=python,
        env=local.env,
    )


def with_own_rewards(config: RunConfig, classes: Iterable[str | None]) -> RunConfig:
    """Return the configuration with the rewards that environments of these classes give
    themselves, each of weight 1, after those that it names; None has none."""
    own = classes_in(config.rewards)
    missing = [name for name in dict.fromkeys(classes) if name is not None and name not in own]
    if not missing:
        return config
    named = config.rewards.all_terms if config.rewards.are_named else ()
    terms = (*named, *(GetReward(environment=name) for name in missing))
    changes = {"terms": terms, "functions": (), "weights": None}
    return config.model_copy(update={"rewards": config.rewards.model_copy(update=changes)})


def classes_in(rewards: RewardsConfig) -> list[str]:
    return [term.environment for term in rewards.terms if isinstance(term, GetReward)]
