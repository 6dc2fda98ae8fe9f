"""The fixtures of all tests of the policy."""

from tests.support.policy.fixtures import actor, model_path, one_thread, run, uninterrupted

__all__ = ["actor", "model_path", "one_thread", "run", "uninterrupted"]
