"""`EnvironmentHandler`: what runs in a process of environments.

The host has the user's code, imported; a *cell*, a fork of it, has the episodes of a problem. What
happens to an environment there is what TRL's GRPOTrainer does to it: `reset(**row)`, calls of its
methods, `get_reward()`. Other than there, each episode has an instance and random streams of its
own.
"""

import asyncio
import contextlib
import copy
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from mortal_steps.config import EnvironmentConfig, RewardTerm
from mortal_steps.environments.inside.judging import JudgingHandler
from mortal_steps.environments.inside.loading import (
    CALL_ID,
    Tool,
    load_code,
    load_environments,
    load_rewards,
    methods_of,
)
from mortal_steps.environments.inside.outages import Outages
from mortal_steps.environments.inside.returned import answer_of, observed_prompt, raised
from mortal_steps.environments.inside.streams import RandomStream, numpy_seed
from mortal_steps.environments.messages import (
    REPLY,
    Description,
    EpisodeStart,
    Opened,
    Scores,
    ToolAnswer,
    ToolCall,
)
from mortal_steps.errors import MortalError
from mortal_steps.rewards.calling.calls import CallArguments, CallFailure
from mortal_steps.rewards.calling.dispatch import begin_call, event_loop, is_async
from mortal_steps.rewards.calling.rows import with_own_rows
from mortal_steps.rewards.judge.ledger import JudgedRun
from mortal_steps.sandbox.executors import ExecutorSettings
from mortal_steps.schedule import derive_seed


@dataclass(kw_only=True)
class _Live:
    """An episode in a cell."""

    environment: Any
    tools: Mapping[str, Tool]
    stream: RandomStream
    seed: int
    draws_by_call: bool
    """Whether each call has a random stream of its own, since calls before it may not have been
    made in this process."""


class EnvironmentHandler(JudgingHandler):
    """Holds the environments, tools and rewards of a run, and in a cell the episodes of one
    problem. `terms` are the stage's rewards, by name; `sandbox` and `judge` serve code that asks
    them."""

    def __init__(
        self,
        *,
        environment: EnvironmentConfig,
        terms: Mapping[str, RewardTerm],
        sandbox: ExecutorSettings | None = None,
        judge: JudgedRun | None = None,
    ) -> None:
        self._config = environment
        super().__init__(sandbox, judge)
        with RandomStream(0).used():  # what a module draws is the same in every process
            self._tools: list[Tool] = [
                load_code(tool, "environment.tools") for tool in environment.tools
            ]
            self._loaded = load_environments(environment, self._tools)
            self._rewards = load_rewards(terms)
        self._own = {
            name: term.full_name for name, term in terms.items() if term.type == "get_reward"
        }
        self._outages = Outages(environment.outages)
        self._episodes: list[_Live] = []

    def describe(self) -> Description:
        """Return what is loaded. Raises `ConfigError` for a tool that cannot be described. A fork
        is asked, since it imports transformers: without it, a cell starts and ends in half of the
        time."""
        return Description(
            environments={name: loaded.described() for name, loaded in self._loaded.items()},
            rewards=list(self._rewards),
        )

    def open(self, *, start: EpisodeStart) -> Opened:
        """Begin an episode; its number follows those of the episodes begun before."""
        began, stream = time.perf_counter(), RandomStream(start.reset_seed)
        loaded = self._loaded[start.environment or ""]
        instance, observed, failure, outage = None, None, None, None
        given = copy.deepcopy(list(start.prompt))  # `reset` may change it in place, as TRL has it
        try:
            if loaded.factory is not None:
                with stream.used():
                    instance = loaded.factory()
                    observed = instance.reset(**self._row(instance, start, given))
            prompt = observed_prompt(start.prompt, given, observed)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to users' code
            prompt, failure = None, raised(error)
            if self._outages.has(error):
                failure, outage = None, failure
        tools = [*self._tools, *(methods_of(instance) if instance is not None else ())]
        self._episodes.append(
            _Live(
                environment=instance,
                tools={tool.__name__: tool for tool in tools},
                stream=RandomStream(start.seed),
                seed=start.seed,
                draws_by_call=loaded.offered.is_stateless or loaded.offered.saves,
            )
        )
        seconds = time.perf_counter() - began
        return Opened(prompt=prompt, failure=failure, outage=outage, seconds=seconds)

    def _row(self, instance: Any, start: EpisodeStart, prompt: list[Any]) -> dict[str, Any]:
        row = dict(start.row)
        if "prompt" in row:
            row["prompt"] = prompt
        if self._config.has_names:
            row.pop("environment", None)
        if "seed" in inspect.signature(instance.reset).parameters and "seed" not in row:
            row["seed"] = numpy_seed(start.reset_seed)
        return row

    def call(self, *, episode: int, calls: Sequence[ToolCall]) -> list[ToolAnswer]:
        """Answer the calls of a turn as TRL does: plain functions in the order of the calls, then
        async ones, which run beside each other. A turn without calls has `_reply` answer it."""
        live = self._episodes[episode]
        stream = live.stream
        if live.draws_by_call:
            stream = RandomStream(derive_seed("call", live.seed, calls[0].call_id))
        with stream.used():
            if calls[0].is_reply:
                return [self._reply(live.environment, calls[0])]
            return self._call(live.tools, calls)

    def _reply(self, environment: Any, said: ToolCall) -> ToolAnswer:
        began = time.perf_counter()
        try:
            found = _made(said, {REPLY: environment._reply})
            if inspect.iscoroutine(found):
                found = asyncio.run_coroutine_threadsafe(found, event_loop()).result()
            if not isinstance(found, str | None):
                kind = type(found).__name__
                raise TypeError(f"returned {kind}; it returns text, or None to end the episode")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to users' code
            if self._outages.has(error):
                return ToolAnswer(name=REPLY, outage=raised(error))
            return ToolAnswer(name=REPLY, content=raised(error), is_error=True)
        return ToolAnswer(name=REPLY, content=found, seconds=time.perf_counter() - began)

    def save(self, *, episode: int) -> Any:
        """Return the environment's state. Raises `TypeError` for a state that is no JSON."""
        live = self._episodes[episode]
        environment = live.environment
        with live.stream.used():
            state = environment._save()
        try:
            return json.loads(json.dumps(state, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{type(environment).__name__}._save() returned what is no JSON ({error}); return "
                "texts, numbers, lists and dictionaries"
            ) from None

    def load(self, *, episode: int, state: Any) -> None:
        """Bring the environment to the state that it saved."""
        live = self._episodes[episode]
        with live.stream.used():
            live.environment._load(state)

    def _call(self, tools: Mapping[str, Tool], calls: Sequence[ToolCall]) -> list[ToolAnswer]:
        answers: list[ToolAnswer] = []
        waiting: list[Coroutine[Any, Any, ToolAnswer]] = []
        for call in calls:
            began = time.perf_counter()
            try:
                result = _made(call, tools)
            except (Exception, SystemExit) as error:  # noqa: BLE001 - the boundary to users' code
                took_s = time.perf_counter() - began if call.name in tools else 0.0
                answers.append(self._error(call.name, error, took_s))
                continue
            if inspect.iscoroutine(result):
                waiting.append(self._awaited(call.name, result))
            else:
                answers.append(answer_of(call.name, result, time.perf_counter() - began))
        if waiting:
            answers += asyncio.run_coroutine_threadsafe(_all(waiting), event_loop()).result()
        return answers

    async def _awaited(self, name: str, result: Awaitable[Any]) -> ToolAnswer:
        """Await an async tool; an error is its answer, since `SystemExit` would end the loop."""
        began = time.perf_counter()
        try:
            found = await result
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # noqa: BLE001 - as above
            return self._error(name, error, time.perf_counter() - began)
        return answer_of(name, found, time.perf_counter() - began)

    def _error(self, name: str, error: BaseException, seconds: float) -> ToolAnswer:
        if self._outages.has(error):
            return ToolAnswer(name=name, outage=raised(error), seconds=seconds)
        if isinstance(error, MortalError):  # such as a judge's wrong key: no answer either
            raise error
        text = str({"error": str(error)})
        return ToolAnswer(name=name, content=text, is_error=True, seconds=seconds)

    def score(
        self, *, episodes: Sequence[int], arguments: CallArguments, limits: Mapping[str, float]
    ) -> Scores:
        """Return what the rewards of `limits` make of the episodes, each called for so many seconds
        at most; as in TRL, async ones last. A name that is no term's is that of a class with
        `get_reward`, which draws from the streams of its own episode."""
        chosen = [self._episodes[index] for index in episodes]
        given = with_own_rows(arguments.by_name)
        given["environments"] = [each.environment for each in chosen]
        with_them = replace(arguments, by_name=given)
        functions = {
            name: self._rewards.get(name) or own_reward(self._own.get(name, name), chosen)
            for name in limits
        }
        by_name: dict[str, Sequence[float | None]] = {}
        metrics: dict[str, list[float]] = {}
        extra: dict[str, Sequence[Any]] = {}
        failures, seconds = {}, {}
        for name in sorted(limits, key=lambda name: is_async(functions[name])):
            stream: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
            if name in self._rewards:
                stream = chosen[0].stream.used()
            with stream:
                outcome = begin_call(functions[name], with_them, timeout_s=limits[name])()
            seconds[name] = outcome.seconds
            if isinstance(outcome, CallFailure):
                failures[name] = outcome.message
                continue
            by_name[name] = outcome.scores
            extra |= outcome.extra
            for metric, values in outcome.metrics.items():
                metrics.setdefault(metric, []).extend(values)
        return Scores(
            by_name={name: by_name[name] for name in limits if name in by_name},
            metrics={name: sum(values) / len(values) for name, values in metrics.items()},
            extra=extra,
            failures=failures,
            seconds=seconds,
        )


def own_reward(kind: str, episodes: Sequence[_Live]) -> Callable[..., Any]:
    """Return the `get_reward` of these episodes as a reward function, async if those are: None for
    environments not of class `kind`. Each draws from its episode's streams."""

    def is_own(environment: Any) -> bool:
        return type(environment).__name__ == kind and hasattr(environment, "get_reward")

    async def awaited(**others: Any) -> list[Any]:
        scores = []
        for each in episodes:
            with each.stream.used():
                found = each.environment.get_reward() if is_own(each.environment) else None
                scores.append(await found if inspect.isawaitable(found) else found)
        return scores

    def get_reward(**others: Any) -> list[Any]:
        scores = []
        for each in episodes:
            with each.stream.used():
                scores.append(each.environment.get_reward() if is_own(each.environment) else None)
        return scores

    methods = [type(each.environment).get_reward for each in episodes if is_own(each.environment)]
    return awaited if any(map(inspect.iscoroutinefunction, methods)) else get_reward


def _made(call: ToolCall, tools: Mapping[str, Tool]) -> Any:
    if call.error is not None:
        raise ValueError(call.error)
    tool = tools.get(call.name)
    if tool is None:
        raise ValueError(f"Tool {call.name} not found.")
    given: Any = call.arguments
    if CALL_ID in inspect.signature(tool).parameters:
        given = {**given, CALL_ID: call.call_id}
    return tool(**given)


async def _all(waiting: Sequence[Awaitable[ToolAnswer]]) -> list[ToolAnswer]:
    return await asyncio.gather(*waiting)
