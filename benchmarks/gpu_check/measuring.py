"""The processes of the speed part: one engine that samples, or one trainer that trains.

python -m benchmarks.gpu_check.measuring '{"what": "train", "folder": "/tmp/x",
                                           "size": {"width": 128, "layers": 2, "tokens": 64}}'
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig, NewModelConfig, RolloutConfig, RunConfig
from mortal_steps.config.engines import engine_kind
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.system.imports import import_named
from mortal_steps.types import (
    Completion,
    PolicyVersion,
    Problem,
    Rollout,
    RolloutBatch,
    RolloutGroup,
    SamplingParams,
)

GROUPS, GROUP_SIZE = 8, 8
PROMPT = "abcdefghijklmnop=>"
ROUNDS = 3
HEAD_DIM = 64


def main(job: dict[str, Any]) -> dict[str, Any]:
    """The median of some rounds, in words."""
    size, folder = job["size"], Path(job["folder"])
    shape = NewModelConfig(
        hidden_size=size["width"],
        num_layers=size["layers"],
        head_dim=HEAD_DIM,
        intermediate_size=3 * size["width"],
        max_position_embeddings=size["tokens"] + len(PROMPT),
    )
    # An engine is built before torch is imported.
    measure = _train if job["what"] == "train" else _sample
    measured = measure(job.get("engine", ""), shape, folder, size["tokens"])
    return {"measured": f"{shape.num_parameters / 1e6:,.1f} M parameters: {measured}"}


def _sample(name: str, shape: NewModelConfig, folder: Path, tokens: int) -> str:
    build = import_named(engine_kind(name).factory, "rollout.engine")
    model = _built(shape, folder)
    engine: Engine = build(
        model_path=str(model),
        model=ModelConfig(max_model_len=tokens + len(PROMPT)),
        rollout=RolloutConfig(engine=name, weight_sync="volume"),
        tokenizer=lambda: _tokenizer(model),
    )
    prompt = _tokenizer(model)(PROMPT)["input_ids"]
    rows = GROUPS * GROUP_SIZE
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        sampled = engine.sample([prompt] * rows, range(rows), SamplingParams(max_tokens=tokens))
        took.append((time.perf_counter() - began) / sum(len(one.token_ids) for one in sampled))
    return f"{1 / sorted(took)[ROUNDS // 2]:,.0f} tokens/s, {rows} at a time{_memory()}"


def _train(name: str, shape: NewModelConfig, folder: Path, tokens: int) -> str:
    from mortal_steps.policy.algorithms import algorithm_of

    model = _built(shape, folder)
    config = RunConfig.model_validate(
        {
            "rewards": {"functions": ["builtins:len"]},
            "rollout": {"engine": "transformers"},
            "training": {
                "batch_size": GROUPS,
                "num_generations": GROUP_SIZE,
                "gradient_accumulation_steps": 4,
                "max_completion_length": tokens,
            },
        }
    )
    stepper = algorithm_of(config).stepper(
        config, model_path=str(model), num_steps=ROUNDS, output_dir=folder / "logs"
    )
    stepper.begin()
    took = []
    for step in range(ROUNDS):
        began = time.perf_counter()
        stepper.train_step(_batch(step, tokens), seed=step)
        took.append(time.perf_counter() - began)
    middle, place = sorted(took)[ROUNDS // 2], stepper.place()
    trained = GROUPS * GROUP_SIZE * tokens
    return (
        f"{middle:.2f} s a step, {trained / middle:,.0f} tokens/s, {place.precision} on "
        f"{place.device}{_memory()}"
    )


def _batch(step: int, tokens: int) -> RolloutBatch:
    """Completions of the greatest length, one of which has a reward in each group."""
    groups = []
    for number in range(GROUPS):
        rollouts = []
        for generation in range(GROUP_SIZE):
            ids = [3 + (number + generation + 7 * at) % 60 for at in range(tokens)]
            reward = float(generation == 0)
            completion = Completion(
                token_ids=ids,
                logprobs=[-4.0] * tokens,
                text="",
                finish_reason="length",
                seed=generation,
                policy_version=PolicyVersion(step),
            )
            rollouts.append(Rollout(completion=completion, rewards={"len": reward}, reward=reward))
        problem = Problem(id=f"train-{number}", prompt=PROMPT)
        prompt_ids = list(range(3, 3 + len(PROMPT)))
        groups.append(RolloutGroup(problem=problem, prompt_ids=prompt_ids, rollouts=rollouts))
    return RolloutBatch(step=step, policy_version=PolicyVersion(step), groups=groups)


def _built(shape: NewModelConfig, folder: Path) -> Path:
    from mortal_steps.policy.starting_model.new_model import build_model

    model = folder / "model"
    if not model.exists():
        build_model(model, shape, seed=0)
    return model


def _tokenizer(model: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


def _memory() -> str:
    import torch

    if not torch.cuda.is_available():
        return ""
    return f", {torch.cuda.max_memory_reserved() / 1e9:.1f} GB at most"


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
