"""Completions of a finished model for prompts that a person types."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from mortal_steps.compute.local import call_in_turn
from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError
from mortal_steps.promotion.judging import STEP, finished_specs, with_model
from mortal_steps.registry.registry import Registry
from mortal_steps.registry.versions import ModelVersion
from mortal_steps.runs.run import Run
from mortal_steps.types import (
    GeneratedShard,
    GenerateRequest,
    GenerationRef,
    PolicyVersion,
    Problem,
    Prompt,
    SamplingParams,
    WeightsRef,
)

FOLDER = "asked"


def ask(
    registry: Registry,
    run: Run,
    config: RunConfig,
    version: ModelVersion,
    prompts: Sequence[Prompt],
    *,
    num_generations: int,
    sampling: SamplingParams,
) -> list[list[str]]:
    """Completions of each prompt, sampled with the run's settings and seed: the same prompt gets
    the same completions.

    Raises `ConfigError` for workers on Modal, and what workers raise.
    """
    if config.compute.backend != "local":
        raise ConfigError(
            f"compute.backend = {config.compute.backend!r}: completions are sampled on this "
            "machine; serve the model on Modal with `mortal serve`"
        )
    asked = json.dumps([version.sha256, prompts, num_generations, repr(sampling), config.seed])
    folder = f"{FOLDER}/{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
    store = registry.store
    problems = [Problem(id=f"asked-{place}", prompt=one) for place, one in enumerate(prompts)]
    request = GenerateRequest(
        stage="generate",
        step=STEP,
        shard=0,
        problems=store.write_record(f"{folder}/problems.json", problems, list[Problem]),
        start=0,
        stop=len(problems),
        num_generations=num_generations,
        sampling=sampling,
        weights=WeightsRef(version=PolicyVersion(STEP), path=version.path, sha256=version.sha256),
        output=f"{folder}/generations-0.parquet",
    )
    spec = finished_specs(with_model(config, store, version), store, run)["rollout"]
    payload: dict[str, Any] = {"request": request}
    found: list[GenerationRef] = call_in_turn(spec, "generate", [payload], store.path("logs"))
    shard = store.read_record(found[0].file, GeneratedShard)
    return [[completion.text for completion in group.completions] for group in shard.groups]
