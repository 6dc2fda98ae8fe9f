"""What the tests of rewards share."""

from tests.support.rollout.fixtures import vllm_python

__all__ = ["vllm_python"]
