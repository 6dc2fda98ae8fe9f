"""Two steps of GRPO in an environment, by MORTAL's own workers, and what came of them."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environments.table import Tried
from mortal_steps.config import RunConfig
from mortal_steps.config.loader import parse_config
from mortal_steps.data.values import NO_PROMPT
from mortal_steps.environments.rows import RowReader
from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.types import Completion, GeneratedShard, Problem, RewardedShard, SamplingParams
from tests.support.environments.cases import CaseRun
from tests.support.environments.describing import describe_once
from tests.support.environments.engine import SCRIPTS, ScriptedEngine, Voice, called
from tests.support.environments.models import build_model
from tests.support.environments.mortal import Workers
from tests.support.environments.served import served

FAMILY = "qwen3"
STEPS, PROBLEMS, GENERATIONS, ROUNDS, MAX_TOKENS, CONTEXT = 2, 2, 4, 4, 6000, 9216


class RecordingEngine(ScriptedEngine):
    """Keeps what it was asked and what it said."""

    said: list[tuple[list[int], list[int]]] = []  # noqa: RUF012 - of all of them

    def sample(
        self,
        prompts_ids: Sequence[Sequence[int]],
        seeds: Sequence[int],
        params: SamplingParams,
    ) -> list[SampledTokens]:
        sampled = super().sample(prompts_ids, seeds, params)
        for ids, each in zip(prompts_ids, sampled, strict=True):
            self.said.append((list(ids), list(each.token_ids)))
        return sampled


@dataclass(frozen=True, kw_only=True)
class Episode:
    """What came of an episode."""

    messages: Sequence[Mapping[str, Any]]
    """With those of the prompt."""
    token_ids: Sequence[int]
    rewards: Mapping[str, float | None]
    stop: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """Two steps."""

    episodes: Sequence[Episode]
    turns: int
    drift: int
    """Turns whose tokens are not those that were sampled, or not behind what was seen then."""
    environment_s: float
    """In `reset`, tools, replies and rewards."""
    seconds: float


def play(tried: Tried, python: str, folder: Path) -> Run:
    """Take the steps."""
    began = time.monotonic()
    model = build_model(folder / "model", FAMILY, context=CONTEXT)
    voice = Voice(FAMILY)
    texts = [*map(voice.text, tried.says), *(voice.calls(called(n, **a)) for n, a in tried.calls)]
    (folder / "model" / SCRIPTS).write_text(json.dumps(texts))
    with contextlib.ExitStack() as stack:
        settings = {**tried.settings, "python": python}
        for name, script in tried.servers.items():
            url = stack.enter_context(served(script, python))
            if name == "url":
                settings[name] = url
            else:
                os.environ[name] = url
        case = _case(tried, settings, str(model))
        RecordingEngine.said.clear()
        workers = Workers(case, folder / "run")
        try:
            return _taken(workers, began)
        finally:
            workers.close()


def _taken(workers: Workers, began: float) -> Run:
    episodes, made, environment_s = list[Episode](), list[Completion](), 0.0
    for step in range(STEPS):
        generated = workers.sample(step)
        rewarded = workers.score(generated)
        shard = workers.store.read_record(generated.file, GeneratedShard)
        scores = workers.store.read_record(rewarded.file, RewardedShard).rewards
        for group, earned in zip(shard.groups, scores, strict=True):
            for each, rewards in zip(group.completions, earned, strict=True):
                prompt = group.problem.prompt if each.prompt is None else each.prompt
                assert not isinstance(prompt, str) and each.episode is not None
                ids = group.prompt_ids if each.prompt_ids is None else each.prompt_ids
                episodes.append(
                    Episode(
                        messages=[*prompt, *each.messages],
                        token_ids=[*ids, *each.token_ids],
                        rewards=rewards,
                        stop=each.episode.stop,
                    )
                )
                made.append(each)
        environment_s += sum(generated.timing.functions.values())
        workers.train(rewarded)
    return Run(
        episodes=episodes,
        turns=sum(len(each.turns) for each in made),
        drift=sum(
            _drift(each, whole.token_ids) for each, whole in zip(made, episodes, strict=True)
        ),
        environment_s=environment_s,
        seconds=time.monotonic() - began,
    )


def _drift(made: Completion, whole: Sequence[int]) -> int:
    """Count the turns that were not sampled as they stand."""
    start = len(whole) - len(made.token_ids)
    said: dict[tuple[int, ...], list[Sequence[int]]] = {}
    for ids, sampled in RecordingEngine.said:
        said.setdefault(tuple(ids), []).append(sampled)
    return sum(
        not any(
            list(sampled[: turn.stop - turn.start]) == list(made.token_ids[turn.start : turn.stop])
            for sampled in said.get(tuple(whole[: start + turn.start]), ())
        )
        for turn in made.turns
    )


def difference(first: Run, second: Run) -> str:
    """Return in words what differs between two runs; '' if nothing does."""
    for number, (one, other) in enumerate(zip(first.episodes, second.episodes, strict=True)):
        for before, now in zip(one.messages, other.messages, strict=False):
            if before != now:
                return f"episode {number}, {before['role']}: {before['content']!r:.60}"
        if one != other:
            return f"episode {number}"
    return ""


def _case(tried: Tried, environment: Mapping[str, Any], model: str) -> CaseRun:
    table = {
        "seed": 11,
        "model": {"name_or_path": model, "max_model_len": CONTEXT},
        "environment": {"max_tool_calling_iterations": ROUNDS, **environment},
        "rollout": {
            "engine": f"{RecordingEngine.__module__}:{RecordingEngine.__name__}",
            "max_tokens": MAX_TOKENS,
        },
        "training": {
            "batch_size": PROBLEMS,
            "num_generations": GENERATIONS,
            "learning_rate": 1e-4,
            "importance_sampling_correction": False,
            "max_completion_length": MAX_TOKENS,
            "gradient_checkpointing": False,
        },
    }
    own, brought = _offered(json.dumps(table["environment"]))
    rewards: dict[str, Any] = {"terms": [{"type": "get_reward", "environment": own}]}
    if tried.reward:
        rewards = {"functions": [tried.reward]}
    config: RunConfig = parse_config({**table, "rewards": rewards})
    return _Rows(
        config=config,
        model_path=model,
        rows=list(tried.rows or brought),
        functions=(),
        weights=(),
        tools=(),
        factory=None,
        num_steps=STEPS,
    )


@functools.cache
def _offered(settings: str) -> tuple[str | None, list[dict[str, Any]]]:
    """Return the reward and the rows that an environment brings."""
    asked = parse_config({"environment": json.loads(settings)}).environment
    rows: list[dict[str, Any]] = [{}] * PROBLEMS
    if asked.has_rows:
        rows = RowReader(environment=asked, passed_on=()).read(held_out=False, limit=PROBLEMS)
    return describe_once(asked).environments[""].reward, rows


class _Rows(CaseRun):
    """Rows of which each is a problem of its own in every step."""

    def batch(self, step: int) -> list[Problem]:
        """Return the problems of a step."""
        return [
            Problem(
                id=f"train-{step * PROBLEMS + number}",
                prompt=row.get("prompt", NO_PROMPT),
                columns={name: value for name, value in row.items() if name != "prompt"},
            )
            for number, row in enumerate(self.rows[:PROBLEMS])
        ]
