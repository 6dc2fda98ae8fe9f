"""How the episodes of a problem begin."""

from typing import Any

from mortal_steps.config import EnvironmentConfig
from mortal_steps.data.values import NO_PROMPT
from mortal_steps.environments.messages import EpisodeStart
from mortal_steps.environments.table import TRL
from mortal_steps.errors import DataError
from mortal_steps.schedule import derive_seed
from mortal_steps.types import Problem


def environment_of(config: EnvironmentConfig, problem: Problem) -> str | None:
    """Return the name of a problem's environment: '' for the only one, None where there are tools
    alone. Raises `DataError` if its row names none that there is."""
    if not config.has_names:
        return None if config.type == TRL and config.factory is None else ""
    name = problem.columns.get("environment")
    if name not in config.factories:
        raise DataError(
            f"problem {problem.id!r}: its column `environment` is {name!r}; "
            f"environment.factory has {', '.join(config.factories)}"
        )
    return str(name)


def episode_start(
    config: EnvironmentConfig, problem: Problem, first_seed: int, seed: int
) -> EpisodeStart:
    """Return how an episode begins whose completion has this seed, and the problem's first one
    `first_seed`. Raises `DataError` for a problem that has no chat."""
    if isinstance(problem.prompt, str):
        raise DataError(
            f"problem {problem.id!r}: its prompt is text, and tools are called in chats; make "
            'it a list of messages, [{"role": "user", "content": ...}]'
        )
    return EpisodeStart(
        environment=environment_of(config, problem),
        prompt=problem.prompt,
        row=given_row(problem),
        reset_seed=derive_seed("reset", first_seed),
        seed=derive_seed("environment", seed),
    )


def given_row(problem: Problem) -> dict[str, Any]:
    """Return the arguments of `reset`: the row, without a prompt if it has none."""
    if problem.prompt == NO_PROMPT:
        return dict(problem.columns)
    return {"prompt": problem.prompt, **problem.columns}
