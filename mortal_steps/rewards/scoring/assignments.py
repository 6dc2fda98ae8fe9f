"""The hosts that a configuration's rewards are assigned to, and what these are given.

One host has the functions, one each a reward model, and a term that asks for processes of its own
has those.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.config import RewardsConfig, RunConfig
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.data.sources import comes_from_gym
from mortal_steps.errors import ConfigError
from mortal_steps.hosts.process import visible_environment
from mortal_steps.rewards.host import ModelHost, RewardHost
from mortal_steps.rewards.judge.ledger import JudgedRun
from mortal_steps.rewards.kinds.model import ModelTerm
from mortal_steps.sandbox.executors import ExecutorSettings
from mortal_steps.scores import reward_names
from mortal_steps.system.resources import num_cores

OF_THE_HUB = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")
"""What a model of the hub may ask for. Its process runs no code but MORTAL's."""
SHARE = 0.8
"""Part of a call's time limit that a sandbox may take to start, so that it can report itself that
it did not start."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """Rewards that are called beside those of other assignments.

    There is one host, which is asked for the whole shard. With `by_problem` there is one reward,
    which is asked for each problem alone, in as many `hosts` at a time as there are.
    """

    names: Sequence[str]
    hosts: Sequence[RewardHost]
    by_problem: bool = False


def assign(config: RunConfig, run_dir: Path, before_start: Callable[[], None]) -> list[Assignment]:
    """Return what the rewards of `config` are called in, none of it started."""
    terms = dict(zip(reward_names(config.rewards), config.rewards.all_terms, strict=True))
    models = {name: term for name, term in terms.items() if isinstance(term, ModelTerm)}
    own = {name: term for name, term in terms.items() if term.own_processes}
    shared = {name: term for name, term in terms.items() if name not in {*models, *own}}
    num_hosts = bool(shared) + sum(term.own_processes or 0 for term in own.values())
    sharing = config.rewards.num_reward_workers * max(1, num_hosts)
    sandbox = sandbox_settings(
        config.rewards, config.compute.modal.app, os.environ, sharing=sharing
    )
    passed_on = {*config.compute.local.reward.env, *config.rewards.credentials}

    def host(terms: Mapping[str, RewardTerm]) -> RewardHost:
        return RewardHost(
            terms,
            gym_rows=comes_from_gym(config.data),
            sandbox=sandbox,
            judge=JudgedRun(
                run_dir=str(run_dir.absolute()), call_timeout_s=config.rewards.timeout_s
            ),
            passed_on=passed_on,
            before_start=before_start,
        )

    def model_host(name: str, term: ModelTerm) -> ModelHost:
        with_template = term.with_template(config.training.template_options)
        return ModelHost(
            {name: with_template}, passed_on={*passed_on, *OF_THE_HUB}, before_start=before_start
        )

    assignments = [Assignment(names=tuple(shared), hosts=[host(shared)])] if shared else []
    for name, model in models.items():
        assignments.append(Assignment(names=(name,), hosts=[model_host(name, model)]))
    for name, term in own.items():
        hosts = [host({name: term}) for _ in range(term.own_processes or 1)]
        assignments.append(Assignment(names=(name,), hosts=hosts, by_problem=term.by_problem))
    return assignments


def sandbox_settings(
    rewards: RewardsConfig, app: str, environment: Mapping[str, str], *, sharing: int = 1
) -> ExecutorSettings:
    """Return where the programs of a run are to run, as `[rewards.sandbox]` says; by default in
    Modal Sandboxes where this is a container of Modal's, and else on this machine.

    Such a container is one already, and shuts nothing in that runs in it. Of the lanes, each of
    `sharing` processes has a part. Raises `ConfigError` if there are fewer of them.
    """
    asked = rewards.sandbox
    kind = asked.place or ("modal" if environment.get("MODAL_IS_REMOTE") == "1" else "local")
    seen = visible_environment(environment, ())
    hidden = {name: value for name, value in environment.items() if name.startswith("MODAL_")}
    return ExecutorSettings(
        kind=kind,
        lanes=_lanes_of_each(asked.lanes, sharing, is_local=kind == "local"),
        allow_unisolated=asked.allow_unisolated,
        patience_s=SHARE * rewards.timeout_s,
        app=app,
        variables={} if kind == "local" else {n: v for n, v in hidden.items() if n not in seen},
    )


def _lanes_of_each(lanes: int | None, sharing: int, *, is_local: bool) -> int | None:
    if lanes is None:
        return max(1, num_cores() // sharing) if is_local else None
    if lanes < sharing:
        raise ConfigError(
            f"rewards.sandbox.lanes = {lanes}: {sharing} processes with reward functions share "
            "them, and each needs one; raise it, or lower rewards.num_reward_workers or the "
            "`processes` of terms"
        )
    return lanes // sharing
