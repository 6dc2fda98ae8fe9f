"""Environments of verifiers v1 (0.4): tasksets, and how agents play their tasks."""

import asyncio
import itertools
import os
import tempfile
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import openai.resources  # noqa: F401 - what each fork would import at its first request
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.agent import agent_config_fields
from verifiers.v1.configs.client import ClientTimeoutConfig, EvalClientConfig
from verifiers.v1.harnesses.null.harness import NullHarnessConfig
from verifiers.v1.runtimes import SubprocessConfig
from verifiers.v1.types import SamplingConfig
from verifiers.v1.utils.loaders import default_harness_id, load_environment, resolve_env_config

from mortal_steps.environments.kinds.verifiers_chat import chat_here
from mortal_steps.environments.kinds.verifiers_tools import NOTED, watch_tools
from mortal_steps.environments.messages import AgentResult, EpisodeStart
from mortal_steps.errors import ConfigError, DataError

TASK = "task"
"""Column that holds a task's data."""
OUTAGES = (
    *("ProviderError", "HarnessError", "ToolsetError", "SandboxError"),
    *("InterceptionError", "TunnelError"),
)
"""Names of verifiers' boundaries whose errors are neither the model's nor the task's fault."""


LOOK_EVERY_S = 0.1


class TasksetAgent:
    """Plays episodes of a taskset's tasks."""

    def __init__(
        self, taskset_id: str, args: Mapping[str, Any], name: str, outages: Sequence[str]
    ) -> None:
        """Load it; `name` is its reward's, and `outages` of its tools end an episode. Raises what
        verifiers raises, and `ConfigError` for tools that cannot be watched."""
        taskset = {**args.get("taskset", {}), "id": taskset_id}
        config = resolve_env_config({**args, "taskset": taskset})
        local = {
            name: _local(agent, default_harness_id(taskset_id))
            for name, agent in agent_config_fields(config).items()
        }
        self._env = load_environment(config.model_copy(update=local))
        self._tasks = type(self._env.taskset).task_type()
        self._id = taskset_id
        self.reward: str | None = name
        chat_here()
        if outages:
            self._check_watched()
            watch_tools(outages)

    def _check_watched(self) -> None:
        config = self._env.config
        agents = agent_config_fields(config).values()
        for tools in (
            *self._env.taskset.toolsets(config.taskset),
            *self._tasks.toolsets(config.taskset.task),
        ):
            there = [tools.config.runtime]
            if getattr(tools.config, "colocated", False):
                there = [each.runtime for each in agents]
            elsewhere = [each.type for each in there if each.type != "subprocess"]
            where = tools.config.url or ", ".join(elsewhere)
            if where:
                raise ConfigError(
                    f"environment.outages cannot be told from answers in the toolset "
                    f"{type(tools).__name__} of {self._id!r}, which runs elsewhere ({where}): what "
                    "its tools raise arrives as text. Have it run on this machine, or set "
                    "environment.outages = [], and the model reads whatever they raise"
                )

    def rows(self, *, held_out: bool, limit: int | None) -> Iterator[dict[str, Any]]:
        """Yield its tasks. It has one list of them, of which rows can be held out."""
        if held_out:
            raise DataError(
                f"environment.id = {self._id!r}: a taskset has no evaluation tasks of its own; set "
                "data.eval_samples, and no data.eval_source"
            )
        if limit is None and not self._env.taskset.bounded:
            raise DataError(
                f"environment.id = {self._id!r}: its taskset has no end; set data.max_samples"
            )
        for task in itertools.islice(self._env.taskset, limit):
            data = task.data.model_dump(mode="json")
            prompt = data["prompt"]
            if isinstance(prompt, str):
                prompt = [{"role": "user", "content": prompt}]
            yield {"prompt": prompt, TASK: data}

    async def run(self, *, base_url: str, start: EpisodeStart) -> AgentResult:
        """Play an episode."""
        if TASK not in start.row:
            raise ConfigError(
                f"a row has no column `{TASK}`, as those of verifiers have; set data.source = "
                "'environment'"
            )
        data = self._tasks.data_type().model_validate(start.row[TASK])
        task = self._tasks(data, self._env.config.taskset.task)
        client = EvalClientConfig(
            base_url=base_url, api_key_var="", timeout=ClientTimeoutConfig(connect=None)
        )
        context = ModelContext(model="policy", client=client, sampling=SamplingConfig())
        with tempfile.TemporaryDirectory() as folder:  # this process plays no other episode
            noted = Path(folder) / "outage"
            os.environ[NOTED] = str(noted)
            async with self._env.serving():
                episode = await _ended(self._env.run_episode(task, context), noted)
            if episode is None:
                return AgentResult(outage=noted.read_text(encoding="utf-8"))
        error = episode.last_error
        own = [each for each in episode.traces if each.agent.config.client.base_url == base_url]
        for trace in own:
            error = error or (None if trace.ok else trace.last_error)
        if error is not None:
            told = f"{error.type}: {error.message}"
            if error.type in OUTAGES:
                return AgentResult(outage=told)
            return AgentResult(failure=f"{told}\n{error.traceback or ''}".strip())
        if episode.is_timeout or any(trace.is_timeout for trace in own):
            return AgentResult(outage="the time has passed that the environment gives an episode")
        return _result(self._id, own)


async def _ended(playing: Coroutine[Any, Any, Any], noted: Path) -> Any:
    """Return the episode; None: a tool had an outage, which is noted."""
    episode = asyncio.ensure_future(playing)
    while not (episode.done() or noted.exists()):
        await asyncio.wait({episode}, timeout=LOOK_EVERY_S)
    if not noted.exists():
        return await episode
    episode.cancel()
    await asyncio.wait({episode})
    return None


def _result(taskset_id: str, traces: list[Any]) -> AgentResult:
    """Return the reward of the only dialogue, which has none unless each of its rewards is there;
    raise `ConfigError` if there are several dialogues."""
    if len(traces) != 1:
        names = ", ".join(trace.agent.name for trace in traces)
        raise ConfigError(
            f"environment.id = {taskset_id!r}: an episode has {len(traces)} dialogues with the "
            f"model ({names}), and one is trained; give the other agents a client of their own in "
            "environment.args"
        )
    (trace,) = traces
    scores = {name: each.score for name, each in trace.rewards.items() if each is not None}
    metrics = {name: each for name, each in trace.metrics.items() if each is not None}
    is_scored = trace.rewards and None not in trace.rewards.values()
    return AgentResult(reward=trace.reward if is_scored else None, metrics={**metrics, **scores})


def _local(agent: Any, harness_id: str) -> Any:
    """Return an agent's configuration with what neither the user nor the environment's author has
    chosen: the plain chat, on this machine."""
    chosen: dict[str, Any] = {}
    if agent.harness is None and harness_id == "bash":  # the default of what has none
        chosen["harness"] = NullHarnessConfig(id="null")
    if "runtime" not in agent.model_fields_set:
        chosen["runtime"] = SubprocessConfig()
    return agent.model_copy(update=chosen)
