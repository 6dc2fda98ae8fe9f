"""Environments of verifiers v0 (0.3): `load_environment`, rollouts, rubrics."""

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import openai.resources  # noqa: F401 - what each fork would import at its first request
import verifiers as vf
from verifiers.types import ClientConfig

from mortal_steps.environments.inside.outages import Outages
from mortal_steps.environments.messages import AgentResult, EpisodeStart
from mortal_steps.errors import ConfigError, DataError

FOREVER_S = 1e7
"""Seconds that a request may take: it waits for the engine."""


class EnvironmentAgent:
    """Plays rollouts of an environment, and has its rubric score them."""

    def __init__(
        self, environment_id: str, args: Mapping[str, Any], name: str, outages: Outages
    ) -> None:
        """Load it; `name` is its reward's, and `outages` of its tools end a rollout. Raises what
        verifiers raises, and `ConfigError` for rewards of whole groups."""
        self._id = environment_id
        self._env = vf.load_environment(environment_id, **args)
        for each in (self._env, *getattr(self._env, "env_map", {}).values()):
            if hasattr(each, "error_formatter"):
                each.error_formatter = _ending_at(outages, each.error_formatter)
        rubrics = _rubrics(self._env.rubric)
        in_groups = [func.__name__ for each in rubrics for func in each._get_group_reward_funcs()]
        if in_groups:
            raise ConfigError(
                f"environment.id = {environment_id!r}: its rewards {', '.join(in_groups)} compare "
                "the rollouts of a group, and here each is scored by itself; leave them out of its "
                "rubric"
            )
        self.reward = name if self._env.score_rollouts else None

    def rows(self, *, held_out: bool, limit: int | None) -> Iterator[dict[str, Any]]:
        """Yield the rows of its dataset, or of its evaluation dataset."""
        rows = self._env.build_eval_dataset() if held_out else self._env.build_dataset()
        if rows is None:
            which = "evaluation" if held_out else "training"
            raise DataError(
                f"environment.id = {self._id!r}: it has no {which} dataset; set data.eval_samples, "
                "or name another source"
            )
        for row in itertools.islice(rows, limit):
            text = row["prompt"]
            is_text = isinstance(text, str)
            yield {**row, "prompt": [{"role": "user", "content": text}] if is_text else text}

    async def run(self, *, base_url: str, start: EpisodeStart) -> AgentResult:
        """Play an episode. Raises what its environment and its rewards raise."""
        row = {name: value for name, value in start.row.items() if value is not None}
        if "example_id" not in row:
            raise ConfigError(
                "a row has no column `example_id`, as those of verifiers have; set data.source = "
                "'environment'"
            )
        at = {"api_base_url": base_url, "api_key_var": ""}
        client = ClientConfig(**at, timeout=FOREVER_S, max_retries=0)
        state = await self._env.rollout(row, client, "policy", {})
        error = state.get("error")
        if isinstance(error, vf.InfraError | vf.ModelError):
            return AgentResult(outage=f"{type(error).__name__}: {error}")
        if error is not None:
            raise error
        if state.get("timed_out"):
            return AgentResult(outage="the time has passed that the environment gives a rollout")
        with _raising_rewards() as missing:
            if self.reward is not None:
                await self._env.rubric.score_rollout(state)
        await self._env.rubric.cleanup(state)
        found = (state["metrics"] or {}).items()
        metrics = {name: value for name, value in found if name not in missing}
        return AgentResult(reward=state["reward"], metrics=metrics)


def _ending_at(outages: Outages, told: Callable[[Exception], str]) -> Callable[[Exception], str]:
    """Return what makes a text for the model of an error of a tool, and ends the rollout where the
    tool could not be asked."""

    def made(error: Exception) -> str:
        if outages.has(error):
            raise vf.ToolCallError(f"{type(error).__name__}: {error}") from error
        return told(error)

    return made


def _rubrics(rubric: Any) -> Iterator[Any]:
    """Yield a rubric, or those that a group of rubrics or environments has."""
    inner = [
        *getattr(rubric, "rubrics", ()),
        *(each.rubric for each in getattr(rubric, "env_map", {}).values()),
    ]
    for each in inner:
        yield from _rubrics(each)
    if not inner:
        yield rubric


@contextlib.contextmanager
def _raising_rewards() -> Iterator[set[str]]:
    """Have what a reward function raises raised; verifiers would log it, and score 0. Yield the
    names of metrics, which weigh nothing, that could not be computed."""
    scored = vf.Rubric._call_individual_reward_func
    missing: set[str] = set()

    async def call(self: Any, func: Callable[..., Any], state: Any) -> float:
        raised: list[Exception] = []

        @functools.wraps(func)
        async def noted(*args: Any, **kwargs: Any) -> float:
            try:
                result = func(*args, **kwargs)
                return float(await result if inspect.isawaitable(result) else result)
            except Exception as error:
                raised.append(error)
                raise

        score: float = await scored(self, noted, state)
        if raised and self.weights[self.funcs.index(func)] != 0:
            raise raised[0]
        missing.update([func.__name__] if raised else ())
        return score

    vf.Rubric._call_individual_reward_func = call
    try:
        yield missing
    finally:
        vf.Rubric._call_individual_reward_func = scored
