"""Tries tools and environments out, without a model and without a run."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.compute.local import call_once
from mortal_steps.environments.messages import Description, Opened
from mortal_steps.environments.plan import EnvironmentPlan
from mortal_steps.environments.trials.tried import GivenCall, TriedEnvironments
from mortal_steps.errors import ConfigError, DataError, EnvironmentFailedError
from mortal_steps.orchestration.checking.own_rewards import environment_worker
from mortal_steps.types import Problem

TRIAL = "mortal_steps.environments.trials.trial:EnvironmentTrial"


def try_environments(
    plan: EnvironmentPlan, problems: Sequence[Problem], calls: Sequence[GivenCall] | None = None
) -> TriedEnvironments:
    """Make calls, given or made up, in an episode per problem, and repeat them."""
    if not plan.environment.is_used:
        raise ConfigError(
            "[environment] is not there, so there is nothing to try; set environment.factory or "
            "environment.tools"
        )
    if plan.environment.asks:
        raise ConfigError(
            f"environment.type = {plan.environment.type!r}: its code asks a model for each turn, "
            "so it cannot be tried without one; `mortal test-rollout` plays a few episodes with "
            "the run's model"
        )
    found: TriedEnvironments = _call(plan, "try_out", problems=list(problems), calls=calls)
    return found


def check_resets(
    plan: EnvironmentPlan, problems: Sequence[Problem]
) -> dict[str, Sequence[Mapping[str, Any]]]:
    """Begin an episode of each problem, and return the tools of each environment, by its name.
    Raises `EnvironmentFailedError` for an episode that fails."""
    offered: Description
    opened: list[Opened]
    offered, opened = _call(plan, "reset", problems=list(problems))
    for problem, begun in zip(problems, opened, strict=True):
        if begun.failure is not None:
            raise EnvironmentFailedError(
                f"problem {problem.id}: {begun.failure}. `mortal test-environment` tries "
                "environments out (rewards.dry_run = false skips this check)"
            )
    return {name: each.tools for name, each in offered.environments.items()}


def read_calls(path: Path) -> list[GivenCall]:
    """Read calls, JSON lines such as {"name": "add", "arguments": {}}. Raises `DataError`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: {error}") from None
    return [
        _given(line, f"{path}, line {number}")
        for number, line in enumerate(lines, 1)
        if line.strip()
    ]


def _given(line: str, place: str) -> GivenCall:
    try:
        found = json.loads(line)
    except ValueError as error:
        raise DataError(f"{place}: {error}") from None
    match found:
        case {"name": str(name), "arguments": dict(arguments), **others} if not others:
            return GivenCall(name=name, arguments=arguments)
    raise DataError(
        f'{place}: {line[:80]!r} is no call; write {{"name": "add", "arguments": {{"amount": 1}}}}'
    )


def _call(plan: EnvironmentPlan, method: str, **arguments: Any) -> Any:
    settings = {"rewards": plan.rewards, "seed": plan.seed, "app": plan.app}
    return call_once(environment_worker(plan, TRIAL, **settings), method, **arguments)
