"""What the tests of both engines use, and the driver that samples with vLLM for them."""

from __future__ import annotations

from mortal_steps.schedule import derive_seed
from mortal_steps.types import SamplingParams

PROBE_IDS = [5, 6, 7, 30, 8, 9, 40, 12]
PROMPTS_IDS = [
    [5, 6, 7, 30],
    [12],
    [5, 6, 7, 30],
    [20, 21, 22, 23, 24, 25, 26],
    # Longer than two blocks of vLLM's key-value cache (128 tokens on CPU), so that it is cached.
    [3 + (7 * position) % 70 for position in range(300)],
    [3 + (7 * position) % 70 for position in range(300)],
]
DRAWS = {
    "plain": SamplingParams(max_tokens=12),
    "cool": SamplingParams(max_tokens=12, temperature=0.6),
    "top_k": SamplingParams(max_tokens=12, top_k=5),
    "top_p": SamplingParams(max_tokens=12, top_p=0.7),
    "min_p": SamplingParams(max_tokens=12, min_p=0.1),
    "cool_top_p": SamplingParams(max_tokens=12, temperature=0.7, top_p=0.9),
    "all": SamplingParams(max_tokens=12, temperature=0.8, top_k=20, top_p=0.8, min_p=0.05),
}
PARAMS = {
    **DRAWS,
    "greedy": SamplingParams(max_tokens=12, temperature=0.0, top_p=0.5),
    "stop": SamplingParams(max_tokens=100, temperature=1.2, stop=("a", "b", "cd", "7")),
    "to_the_end": SamplingParams(max_tokens=200, temperature=1.2),
}
RANK = 5
"""Of adapters; vLLM makes room for 8."""
SPREAD = {"tensor_parallel_size": 2}
"""Options of a vLLM that is spread over two processes."""
SPREAD_ENV = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}
"""On a CPU, vLLM would else give each of them a NUMA node of its own."""
ADAPTER_SYNCS = ("v0", "v1", "whole", "v1")
"""What the driver loads into an engine with room for adapters, in this order."""


def seeds(count: int) -> list[int]:
    return [derive_seed("vllm", index) for index in range(count)]
