"""What every process of vLLM that holds a part of the model imports before it builds that part: the
methods that compare its tensors, and kernels that keep tensors as they were published."""

from vllm.platforms import current_platform

from mortal_steps.rollout.engines.vllm import platforms
from mortal_steps.rollout.engines.vllm.weights import Witness

__all__ = ["Witness"]

if current_platform.is_cpu():
    platforms.keep_weights_plain()
else:
    platforms.add_adapters_in_order()
