"""The hosts that a configuration's rewards are assigned to, and what these are given.

One host has the functions, each reward that is a model has one, and a term that asks for processes
of its own has those.
"""

import functools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.config import ComputeConfig, RewardsConfig
from mortal_steps.errors import ConfigError
from mortal_steps.hosts.process import visible_environment
from mortal_steps.rewards.host import ModelHost, RewardHost
from mortal_steps.rewards.judge.ledger import JudgedRun
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
    """Rewards that are called beside those of other assignments. There is one host, which is asked
    for the whole shard. With `by_problem` there is one reward, which is asked for each problem
    alone, in as many `hosts` at a time as there are."""

    names: Sequence[str]
    hosts: Sequence[RewardHost]
    by_problem: bool = False


def assign(
    rewards: RewardsConfig,
    *,
    compute: ComputeConfig,
    gym_rows: bool,
    template_options: dict[str, Any],
    run_dir: Path,
    before_start: Callable[[], None],
) -> list[Assignment]:
    """Return what the rewards are called in, none of it started. The chat template of reward models
    takes `template_options`; the other parameters are explained at `RewardHost`."""
    named = zip(reward_names(rewards), rewards.all_terms, strict=True)
    terms = {name: term for name, term in named if not term.with_environment}
    models = {name: term for name, term in terms.items() if term.is_model}
    own = {name: term for name, term in terms.items() if term.own_processes}
    shared = {name: term for name, term in terms.items() if name not in {*models, *own}}
    num_hosts = bool(shared) + sum(term.own_processes or 0 for term in own.values())
    sharing = rewards.num_reward_workers * max(1, num_hosts)
    make_host = functools.partial(
        RewardHost,
        gym_rows=gym_rows,
        sandbox=sandbox_settings(rewards, compute.modal.app, os.environ, sharing=sharing),
        judge=JudgedRun(run_dir=str(run_dir.absolute()), call_timeout_s=rewards.timeout_s),
        passed_on={*compute.local.reward.env, *rewards.credentials},
        before_start=before_start,
    )
    assignments = [Assignment(names=tuple(shared), hosts=[make_host(shared)])] if shared else []
    for name, term in models.items():
        host = ModelHost(
            {name: term.with_template(template_options)},
            passed_on={*compute.local.reward.env, *rewards.credentials, *OF_THE_HUB},
            before_start=before_start,
            python=compute.local.rollout.python if term.needs_engine else None,
            variables=term.process_variables(os.environ.get("CUDA_VISIBLE_DEVICES")),
        )
        assignments.append(Assignment(names=(name,), hosts=[host]))
    for name, term in own.items():
        hosts = [make_host({name: term}) for _ in range(term.own_processes or 1)]
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
