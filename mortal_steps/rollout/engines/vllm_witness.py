"""What every process of vLLM that holds a part of the model imports before it builds that part: the
methods that compare its tensors, and kernels that keep tensors as they were published."""

from vllm.platforms import current_platform

from mortal_steps.rollout.engines import vllm_cpu, vllm_gpu
from mortal_steps.rollout.engines.vllm_weights import Witness

__all__ = ["Witness"]

if current_platform.is_cpu():
    vllm_cpu.keep_weights_plain()
else:
    vllm_gpu.add_adapters_in_order()
