"""What every process of vLLM that holds a part of the model imports before it builds that part: the
methods that compare its tensors, kernels that keep tensors as they were published, and samplers
that report the log-probabilities that a run records."""

from vllm.platforms import current_platform

from mortal_steps.rollout.engines.vllm import platforms, sampler
from mortal_steps.rollout.engines.vllm.weights import Witness

__all__ = ["Witness"]

sampler.report_whole_vocabulary(on_cpu=current_platform.is_cpu())
if current_platform.is_cpu():
    platforms.keep_weights_plain()
else:
    platforms.add_adapters_in_order()
