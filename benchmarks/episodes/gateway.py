"""The gateway alone: what a turn costs that an agent asks for; the engine takes no time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from benchmarks.episodes import asking
from benchmarks.episodes.scripted import PROMPT, script
from mortal_steps.config import RewardsConfig
from mortal_steps.environments.gateway.episodes import GatewayEpisodes
from mortal_steps.environments.kinds.agent import AgentEnvironment
from mortal_steps.policy.algorithms.stepping.chat_settings import settle_chat
from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.rollout.episodes.base import ToolSettings
from mortal_steps.types import PolicyVersion, Problem, SamplingParams

PROBLEMS, GENERATIONS, CALLS = 16, 4, 8


class Says:
    """Says what a script has, at once. `cpu_s` is what it took."""

    max_model_len = 4096
    cpu_s = 0.0

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._turns: list[list[int]] = []
        for turn in range(CALLS + 1):
            text = script(CALLS, 0, turn)
            self._turns.append(tokenizer.encode(text, add_special_tokens=False))

    def sample(
        self, prompts_ids: Sequence[Sequence[int]], seeds: Sequence[int], params: SamplingParams
    ) -> list[SampledTokens]:
        began, mark = time.process_time(), self._tokenizer.convert_tokens_to_ids("<tool_response>")
        said = [self._turns[list(ids).count(mark)] for ids in prompts_ids]
        self.cpu_s += time.process_time() - began
        return [
            SampledTokens(token_ids=ids, logprobs=[-1.0] * len(ids), finish_reason="stop")
            for ids in said
        ]


def measure(folder: Path, model: str) -> dict[str, float]:
    """Return the CPU time of a turn in the worker, without the engine's and without that of the
    agents, and how long a turn of all episodes took."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    episodes = GatewayEpisodes(
        tokenizer=tokenizer,
        template_options={},
        environment=AgentEnvironment(agent=f"{asking.__file__}:fills"),
        rewards=RewardsConfig(terms=({"type": "get_reward", "environment": "fills"},)),
        chat=settle_chat(tokenizer, "qwen3"),
        settings=ToolSettings(),
        run_dir=folder,
    )
    engine: Any = Says(tokenizer)
    problems = [
        Problem(id=f"train-{number}", prompt=PROMPT, columns={"target": CALLS})
        for number in range(PROBLEMS)
    ]
    seeds = [[4 * number + each for each in range(GENERATIONS)] for number in range(PROBLEMS)]
    params = SamplingParams(max_tokens=2048)
    try:
        episodes.sample(engine, problems[:2], seeds[:2], params, PolicyVersion(0))  # warms up
        began, cpu_s, engine.cpu_s = time.perf_counter(), time.process_time(), 0.0
        groups = episodes.sample(engine, problems, seeds, params, PolicyVersion(0))
    finally:
        episodes.close()
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_s - engine.cpu_s
    turns = sum(len(made.turns) for group in groups for made in group.completions)
    return {
        f"CPU time of a turn, {PROBLEMS * GENERATIONS} agents, ms": 1e3 * cpu_s / turns,
        "a turn of all of them, with their processes, s": took_s / (CALLS + 1),
    }
