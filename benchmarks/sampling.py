"""What two settings of vLLM's cost on a CPU, side by side: seeds, and the cache of prefixes.

    .venv-vllm/bin/python -m benchmarks.sampling            # make bench-sampling

Seeds: 64 completions of 32 tokens with `rollout.seeds` "request" and "engine", in turn from one
engine, by the size of the vocabulary. Prefixes: 4 prompts of 300 tokens with 8 completions of 24
tokens each, with and without `enable_prefix_caching`. The model has two layers, so that sampling
weighs as much as it ever does. CPU seconds; the least of some rounds. Rounding: how far the same
completions differ (nats) where vLLM takes 8 sequences at once instead of 32. Five minutes.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.output import add_output_option, console, results_table, write_results
from mortal_steps.rollout.engines.vllm.library import import_vllm

import_vllm()  # before torch, which reads what it sets

import torch  # noqa: E402
from transformers import AutoModelForCausalLM, Qwen3Config  # noqa: E402

from mortal_steps.config import ModelConfig, RolloutConfig  # noqa: E402
from mortal_steps.rollout.engines.vllm.engine import VllmEngine  # noqa: E402
from mortal_steps.types import SamplingParams  # noqa: E402
from tests.support.rollout.tiny_model import build_tiny_model  # noqa: E402

VOCABULARIES = (77, 32_000, 151_936)


def main() -> None:
    """Measure, print the tables, write the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sampling")
    parser.add_argument("--rounds", type=int, default=5)
    add_output_option(parser, "sampling")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sampling-") as folder:
        seeds = [_seeds(Path(folder), size, args.rounds) for size in VOCABULARIES]
        prefixes = _prefixes(Path(folder), args.rounds)
        rounding = _rounding(Path(folder) / str(VOCABULARIES[0]))
    table = results_table("64 completions of 32 tokens", "vocabulary", "request", "engine", "ratio")
    for row in seeds:
        ratio = row["request"] / row["engine"]
        table.add_row(
            str(row["size"]), f"{row['request']:.3f} s", f"{row['engine']:.3f} s", f"{ratio:.2f}"
        )
    console.print(table)
    ratio = prefixes["on"] / prefixes["off"]
    console.print(
        f"prefix cache: {prefixes['on']:.3f} s, without {prefixes['off']:.3f} s ({ratio:.2f})"
    )
    console.print(f"8 sequences at once instead of 32: log-probabilities differ by {rounding:.1e}")
    results = {"seeds": seeds, "prefixes": prefixes, "rounding": rounding}
    write_results(args.output, results)


def _model(folder: Path, vocabulary: int) -> Path:
    made = folder / str(vocabulary)
    made.mkdir()
    build_tiny_model(made, seed=1)  # whose tokenizer does
    config = Qwen3Config.from_pretrained(made)
    config.vocab_size, config.hidden_size, config.intermediate_size = vocabulary, 128, 256
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(made)
    return made


def _engine(model: Path, **options: Any) -> VllmEngine:
    return VllmEngine(
        model_path=str(model),
        model=ModelConfig(),
        rollout=RolloutConfig(engine_options=options),
        tokenizer=lambda: None,
    )


def _cpu_s(engine: VllmEngine, prompts: list[list[int]], max_tokens: int) -> float:
    params, seeds = SamplingParams(max_tokens=max_tokens), list(range(len(prompts)))
    began = time.process_time()
    engine.sample(prompts, seeds, params)
    return time.process_time() - began


def _seeds(folder: Path, size: int, rounds: int) -> dict[str, float]:
    engine = _engine(_model(folder, size))
    least: dict[str, float] = {"size": size}
    for _ in range(rounds + 1):  # the first one warms up
        for how in ("request", "engine"):
            engine._one_seed = how == "engine"
            took = _cpu_s(engine, [[5, 6, 7]] * 64, 32)
            least[how] = min(took, least.get(how, took))
    engine.close()
    return least


def _group() -> list[list[int]]:
    drawn = random.Random(0)
    prompts = [[drawn.randrange(5, 70) for _ in range(300)] for _ in range(4)]
    return [prompt for prompt in prompts for _ in range(8)]


def _rounding(model: Path) -> float:
    found = []
    for options in ({}, {"max_num_seqs": 8}):
        engine = _engine(model, **options)
        group = _group()
        found.append(engine.sample(group, list(range(len(group))), SamplingParams(max_tokens=24)))
        engine.close()
    pairs = [pair for pair in zip(*found, strict=True) if pair[0].token_ids == pair[1].token_ids]
    logprobs = [zip(one.logprobs, other.logprobs, strict=True) for one, other in pairs]
    return max(abs(a - b) for completion in logprobs for a, b in completion)


def _prefixes(folder: Path, rounds: int) -> dict[str, float]:
    group = _group()
    least: dict[str, float] = {}
    for how in ("on", "off"):
        engine = _engine(folder / str(VOCABULARIES[0]), enable_prefix_caching=how == "on")
        for _ in range(rounds + 1):
            took = _cpu_s(engine, group, 24)
            least[how] = min(took, least.get(how, took))
        engine.close()
    return least


if __name__ == "__main__":
    main()
