"""The fixtures of all tests of sampling, and those of tests with vLLM."""

from tests.support.rollout.fixtures import (
    engine,
    folders,
    model_a,
    model_b,
    other_shape,
    run,
    tokenizer,
    vllm_python,
)

__all__ = [
    "engine",
    "folders",
    "model_a",
    "model_b",
    "other_shape",
    "run",
    "tokenizer",
    "vllm_python",
]
