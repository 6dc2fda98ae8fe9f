"""What a process imports from which vLLM workers are forked (`EngineKind.preload`).

An engine is never built here: it starts threads, and on a GPU it initialises CUDA. Neither survives
a fork. Beside what `import vllm` takes in, these are the modules that an engine on a CPU imports
while it is built, and a model of the kind that most runs train.
"""

from __future__ import annotations

import importlib

from mortal_steps.rollout.engines.vllm_library import import_vllm

ON_ANY_DEVICE = (
    "vllm.entrypoints.llm",
    "vllm.v1.engine.llm_engine",
    "vllm.v1.core.sched.scheduler",
    "mortal_steps.rollout.worker",
    "mortal_steps.rollout.engines.vllm",
)
ON_CPU = (
    "vllm.v1.worker.cpu_worker",
    "vllm.v1.attention.backends.cpu_attn",
    "vllm.model_executor.model_loader",
    "vllm.model_executor.models.qwen3",
)

vllm = import_vllm()
for module in (*ON_ANY_DEVICE, *(ON_CPU if vllm.platforms.current_platform.is_cpu() else ())):
    importlib.import_module(module)
