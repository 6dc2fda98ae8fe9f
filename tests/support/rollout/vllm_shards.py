"""Of the driver: whether a shard has the same bits whatever was sampled before it."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

from mortal_steps.rollout.engines.base import SampledTokens
from mortal_steps.rollout.engines.vllm.engine import VllmEngine
from mortal_steps.types import SamplingParams
from tests.support.rollout.cases import PARAMS, PROMPTS_IDS, seeds


def plain(sampled: list[SampledTokens]) -> list[list[Any]]:
    return [[list(s.token_ids), list(s.logprobs), s.finish_reason] for s in sampled]


def check_common_prompts(engine: VllmEngine) -> dict[str, Any]:
    """Groups whose prompts are longer than the blocks of vLLM's prefix cache: first of all, after
    another shard, and with a cache that holds the very prompts."""
    drawn = random.Random(0)
    prompts = [[drawn.randrange(5, 70) for _ in range(300)] for _ in range(4)]
    group = [prompt for prompt in prompts for _ in range(8)]
    params = SamplingParams(max_tokens=24)

    def shard(first_seed: int = 0) -> list[list[Any]]:
        return plain(
            engine.sample(group, seeds(len(group))[first_seed:] + [9] * first_seed, params)
        )

    found = {"first": shard(), "another": shard(1), "again": shard()}
    engine._reset_prefix_cache, reset = lambda: None, engine._reset_prefix_cache
    engine._batches, salts = itertools.repeat(0), engine._batches
    shard()
    found["warm"] = shard()
    engine._reset_prefix_cache, engine._batches = reset, salts
    return found


def check_one_seed(engine: VllmEngine, orders: Sequence[int]) -> list[list[list[Any]]]:
    """Return a shard for each order of its seeds, drawn with `rollout.seeds = "engine"`."""
    engine._one_seed = True
    all_seeds = seeds(len(PROMPTS_IDS))
    found = [engine.sample(PROMPTS_IDS, all_seeds[::order], PARAMS["plain"]) for order in orders]
    engine._one_seed = False
    return [plain(shard) for shard in found]
