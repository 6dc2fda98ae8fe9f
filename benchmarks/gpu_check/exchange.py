"""A version on its way: digest, publish, and a worker that loads and proves it, alone in memory."""

import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Found, Options, check_one, figures, in_words


def check(
    part: str, folder: Path, options: Options, size: float, dtype: str, methods: Sequence[str]
) -> Iterator[Checked]:
    """Yield a check for each way of syncing, which passes where it runs."""
    for method in methods:

        def look(method: str = method) -> Found:
            is_vllm = options.sampler == "vllm"
            job: dict[str, Any] = {
                "size": size,
                "dtype": dtype,
                "rank": 0,
                "rounds": 1,
                "engine": options.sampler,
                "engine_options": {"gpu_memory_utilization": 0.4} if is_vllm else {},
                "canary_tolerance": 1.0,
                "worker_python": options.engines[options.sampler],
            }
            return _in_words(options.ask("exchange:measure", folder / method, method=method, **job))

        yield check_one(part, f"{size}B in {dtype}, {method}: a version", look)


def _in_words(answer: Mapping[str, Any]) -> Found:
    stages = ("digest", "publish", "load", "canary")
    found = figures("s", **{name: answer[f"{name}_s"] for name in stages})
    words = f"{in_words(found)} (load with proof); {answer['bytes'] / 1e9:.2f} GB"
    return Found(measured=words, figures=found)


def measure(job: dict[str, Any]) -> dict[str, Any]:
    """Return the seconds of a version, after one that starts everything."""
    import torch

    from benchmarks.weights.measured import versions
    from benchmarks.weights.shapes import build
    from benchmarks.weights.sides import Policy
    from mortal_steps.policy.algorithms.stepping.digests import weights_digest

    folder = Path(job["folder"])
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = build(job["size"], folder / "model", dtype=job["dtype"], device=device)

    def digest() -> dict[str, float]:
        began = time.perf_counter()
        weights_digest(model)
        return {"digest_s": time.perf_counter() - began}

    (found,) = versions(job, job["method"], folder, Policy(model, tokenizer), digest)
    return {**found, "bytes": sum(p.numel() * p.element_size() for p in model.parameters())}
