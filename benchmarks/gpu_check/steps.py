"""TRL's train step on a model of real size: seconds, arithmetic, and memory beside the forecast."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Figure, Found, Options, check_one, in_words
from benchmarks.gpu_check.models import model_in
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig

GROUPS, GROUP_SIZE = 8, 4
ROUNDS = 3
SIZE = 1.5
"""Billions of parameters."""
MOST_OFF = 0.15
"""By which part the forecast of the memory may be off, as on a CPU."""
PEAK_TFLOPS = {"H100": 989, "H200": 989, "A100": 312}
"""Of matrices in bfloat16, by the makers: an MFU is told for these alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """How a step of 32 rows is taken."""

    rows: int
    """Of a micro-batch."""
    tokens: int
    """Of each completion."""
    prompt: int = 128
    """Tokens of each prompt."""
    lora: bool = False
    autocast: bool = True
    """Multiply matrices in bfloat16, where the GPU has it."""
    deterministic: bool = True
    checkpointing: bool = True

    def __str__(self) -> str:
        said = [f"{self.rows} rows of {self.prompt + self.tokens} tokens"]
        said += ["LoRA"] if self.lora else []
        said += [] if self.autocast else ["float32"]
        said += [] if self.deterministic else ["any kernels"]
        said += [] if self.checkpointing else ["no checkpointing"]
        return ", ".join(said)


VARIANTS = (
    Variant(rows=8, tokens=896),
    Variant(rows=8, tokens=896, lora=True),
    Variant(rows=8, tokens=384),
    Variant(rows=4, tokens=1920),
    Variant(rows=4, tokens=1920, lora=True),
    Variant(rows=32, tokens=384),
    Variant(rows=8, tokens=384, lora=True),
    Variant(rows=8, tokens=896, deterministic=False),
    Variant(rows=8, tokens=896, checkpointing=False),
    Variant(rows=2, tokens=3968),
)
TINY = (
    Variant(rows=8, tokens=3, prompt=3),
    Variant(rows=32, tokens=3, prompt=3, lora=True, checkpointing=False),
)


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield a check for each variant of a step of a model with random weights."""
    size = options.size if options.tiny else SIZE
    built = check_one("steps", "the model is made", lambda: _build(folder, options, size))
    yield built
    if built.passed:
        yield from check_variants(
            "steps", folder, options, folder / "model", TINY if options.tiny else VARIANTS
        )


def check_variants(
    part: str, folder: Path, options: Options, model: Path, variants: Sequence[Variant]
) -> Iterator[Checked]:
    """Yield a check for each; one fails whose memory is far from the forecast."""
    for variant in variants:

        def look(variant: Variant = variant) -> Found:
            job = {"model": str(model), **asdict(variant)}
            return _in_words(options.ask("steps:measure", folder, **job))

        yield check_one(part, f"step: {variant}", look)


def _build(folder: Path, options: Options, size: float) -> Found:
    return Found(measured=f"{size} billion parameters: {model_in(folder, options, size)}")


def _in_words(answer: dict[str, Any]) -> Found:
    seconds = answer["seconds"]
    rate = answer["model_flop"] / seconds / 1e12
    found = {
        "a step": Figure(value=seconds, unit="s"),
        "computed": Figure(value=rate, unit="TFLOP/s"),
        "trained": Figure(value=answer["tokens"] / seconds, unit="tokens/s"),
    }
    peak = next((most for name, most in PEAK_TFLOPS.items() if name in answer["device"]), None)
    if peak and "bf16" in answer["precision"]:
        found["of the peak"] = Figure(value=100 * rate / peak, unit="% MFU")
    words = f"{answer['precision']} on {answer['device']}"
    is_near = True
    if measured := answer["peak_bytes"]:
        off = answer["forecast_bytes"] / measured - 1
        is_near = abs(off) <= MOST_OFF
        found["memory"] = Figure(value=measured / 1e9, unit="GB")
        words += (
            f"; forecast {answer['forecast_bytes'] / 1e9:.2f} GB, {off:+.0%} of what was in use; "
            f"{answer['reserved_bytes'] / 1e9:.2f} GB reserved"
        )
    return Found(passed=is_near, measured=f"{in_words(found)}; {words}", figures=found)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Seconds of the median step, and what it computed."""
    import torch

    from mortal_steps.compute.memory import training_memory
    from mortal_steps.models.shape import read_shape
    from mortal_steps.policy.algorithms.base import algorithm_of
    from tests.support.measured_memory import full_batch

    config = _config(job)
    stepper: Any = algorithm_of(config.algorithm).stepper(
        Plan(config).trainer,
        model_path=job["model"],
        num_steps=ROUNDS + 1,
        output_dir=Path(job["folder"]) / "logs",
    )
    stepper.begin()
    took = []
    for step in range(ROUNDS + 1):
        batch = full_batch(config, step, job["prompt"], job["tokens"])
        began = time.perf_counter()
        stepper.train_step(batch, seed=step)
        took.append(time.perf_counter() - began)
    place, is_gpu = stepper.place(), torch.cuda.is_available()
    trainer, shape = stepper._trainer, read_shape(Path(job["model"]) / "config.json")
    assert shape is not None
    forecast = training_memory(
        config.model,
        config.training,
        shape,
        prompt=job["prompt"],
        autocast=trainer.args.bf16,
    )
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    tokens = GROUPS * GROUP_SIZE * (job["prompt"] + job["tokens"])
    return {
        "seconds": sorted(took[1:])[ROUNDS // 2],
        "tokens": tokens,
        # Forward and backward, of an adapter without the gradients of the other weights: what
        # checkpointing and the old log-probabilities repeat is not work, and attention not counted.
        "model_flop": (4 if job["lora"] else 6) * parameters * tokens,
        "peak_bytes": torch.cuda.max_memory_allocated() if is_gpu else 0,
        "reserved_bytes": torch.cuda.max_memory_reserved() if is_gpu else 0,
        "forecast_bytes": forecast.total,
        "device": place.device,
        "precision": place.precision,
    }


def _config(job: dict[str, Any]) -> RunConfig:
    return RunConfig.model_validate(
        {
            "rewards": {"functions": ["mortal.rewards.functions:exact_match"]},
            "rollout": {"engine": "transformers"},
            "training": {
                "batch_size": GROUPS,
                "num_generations": GROUP_SIZE,
                "gradient_accumulation_steps": GROUPS * GROUP_SIZE // job["rows"],
                "gradient_checkpointing": job["checkpointing"],
                "deterministic": job["deterministic"],
                "max_completion_length": job["tokens"],
                "use_lora": job["lora"],
                "trl": {} if job["autocast"] else {"bf16": False},
            },
        }
    )
