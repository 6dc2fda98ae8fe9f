"""TRL's train step on a model of real size: seconds, arithmetic and memory by micro-batch.

python -m benchmarks.gpu_check.steps '{"folder": "/tmp/x", "size": 0.01, "rows": 2, "tokens": 32,
    "prompt": 8, "deterministic": true, "checkpointing": true}'
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Found, Options, check_one
from mortal_steps.config import RunConfig
from mortal_steps.types import (
    Completion,
    PolicyVersion,
    Problem,
    Rollout,
    RolloutBatch,
    RolloutGroup,
)

GROUPS, GROUP_SIZE = 8, 4
ROUNDS = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """How a step of 32 rows is taken."""

    rows: int
    """Of a micro-batch."""
    tokens: int
    """Of each completion."""
    prompt: int = 150
    """Tokens of each prompt."""
    deterministic: bool = True
    checkpointing: bool = True

    def __str__(self) -> str:
        said = [f"{self.rows} rows of {self.prompt + self.tokens} tokens"]
        said += [] if self.deterministic else ["any kernels"]
        said += [] if self.checkpointing else ["no checkpointing"]
        return ", ".join(said)


VARIANTS = (
    Variant(rows=8, tokens=1024),
    Variant(rows=8, tokens=1024, deterministic=False),
    Variant(rows=8, tokens=1024, checkpointing=False),
    Variant(rows=8, tokens=450),
    Variant(rows=32, tokens=450),
    Variant(rows=32, tokens=1024),
)
TINY = (Variant(rows=8, tokens=3, prompt=3), Variant(rows=32, tokens=3, prompt=3))


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield a check for each variant; they pass where they run."""
    for variant in TINY if options.tiny else VARIANTS:

        def look(variant: Variant = variant) -> Found:
            answer = options.ask(
                options.trainer, "steps", folder, size=options.size, **asdict(variant)
            )
            return _in_words(answer)

        yield check_one("training", f"step: {variant}", look)


def _in_words(answer: dict[str, Any]) -> Found:
    seconds = answer["seconds"]
    words = (
        f"{seconds:.2f} s a step, {answer['model_flop'] / seconds / 1e12:,.1f} TFLOP/s of the "
        f"model's own, {answer['tokens'] / seconds:,.0f} tokens/s, {answer['precision']} on "
        f"{answer['device']}"
    )
    if answer["peak_bytes"]:
        words += (
            f", {answer['peak_bytes'] / 1e9:.1f} GB at most, "
            f"{answer['reserved_bytes'] / 1e9:.1f} GB reserved, digest {answer['digest_s']:.2f} s"
        )
    return Found(measured=words, numbers=answer)


def main(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the median step, and what it computed."""
    import torch

    from benchmarks.weights.shapes import build
    from mortal_steps.policy.algorithms import algorithm_of

    folder, length = Path(job["folder"]), job["prompt"] + job["tokens"]
    model = folder / f"model-{job['size']}"
    if not model.exists():
        build(job["size"], model, positions=max(2048, length))
    config = RunConfig.model_validate(
        {
            "rewards": {"functions": ["builtins:len"]},
            "rollout": {"engine": "transformers"},
            "training": {
                "batch_size": GROUPS,
                "num_generations": GROUP_SIZE,
                "gradient_accumulation_steps": GROUPS * GROUP_SIZE // job["rows"],
                "gradient_checkpointing": job["checkpointing"],
                "deterministic": job["deterministic"],
                "max_completion_length": job["tokens"],
            },
        }
    )
    stepper: Any = algorithm_of(config).stepper(
        config, model_path=str(model), num_steps=ROUNDS + 1, output_dir=folder / "logs"
    )
    stepper.begin()
    took = []
    for step in range(ROUNDS + 1):
        began = time.perf_counter()
        stepper.train_step(_batch(step, job["prompt"], job["tokens"]), seed=step)
        took.append(time.perf_counter() - began)
    place, is_gpu = stepper.place(), torch.cuda.is_available()
    peak, reserved = (
        (torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()) if is_gpu else (0, 0)
    )
    began = time.perf_counter()
    stepper.weights_digest()
    digest_s = time.perf_counter() - began
    parameters = sum(parameter.numel() for parameter in stepper._trainer.model.parameters())
    tokens = GROUPS * GROUP_SIZE * length
    return {
        "seconds": sorted(took[1:])[ROUNDS // 2],
        "first_s": took[0],
        "digest_s": digest_s,
        "tokens": tokens,
        "parameters": parameters,
        # Forward and backward: what checkpointing and the old log-probabilities repeat is not work.
        "model_flop": 6 * parameters * tokens,
        "peak_bytes": peak,
        "reserved_bytes": reserved,
        "device": place.device,
        "precision": place.precision,
    }


def _batch(step: int, prompt: int, tokens: int) -> RolloutBatch:
    """Completions of the greatest length, one of which has a reward in each group."""
    groups = []
    for number in range(GROUPS):
        rollouts = []
        for generation in range(GROUP_SIZE):
            completion = Completion(
                token_ids=[3 + (number + generation + 7 * at) % 60 for at in range(tokens)],
                logprobs=[-12.0] * tokens,
                text="",
                finish_reason="length",
                seed=generation,
                policy_version=PolicyVersion(step),
            )
            reward = float(generation == 0)
            rollouts.append(Rollout(completion=completion, rewards={"len": reward}, reward=reward))
        problem = Problem(id=f"train-{number}", prompt="a" * prompt)
        prompt_ids = [3 + at % 60 for at in range(prompt)]
        groups.append(RolloutGroup(problem=problem, prompt_ids=prompt_ids, rollouts=rollouts))
    return RolloutBatch(step=step, policy_version=PolicyVersion(step), groups=groups)


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
