"""The fixtures of all tests of sampling."""

from tests.support.rollout.fixtures import engine, model_a, model_b, other_shape, tokenizer

__all__ = ["engine", "model_a", "model_b", "other_shape", "tokenizer"]
