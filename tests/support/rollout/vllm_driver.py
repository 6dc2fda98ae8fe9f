"""Runs the real vLLM engine, under an interpreter that has it, and prints what it gave as JSON.

    python -m tests.support.rollout.vllm_driver '{"model_a": ..., "model_b": ..., ...}'

One process for all checks, since importing vLLM costs seconds. `test_vllm_engine.py` judges the
last line of the output.
"""

from __future__ import annotations

import inspect
import itertools
import json
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.errors import EngineError, MortalError, WeightsMismatchError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rollout.engines.table import VLLM_ADAPTERS
from mortal_steps.rollout.engines.vllm import platforms
from mortal_steps.rollout.engines.vllm.engine import VllmEngine
from mortal_steps.rollout.weight_sync.base import weight_sync
from mortal_steps.rollout.weight_sync.published import PublishedTensors
from mortal_steps.rollout.worker import RolloutWorker
from mortal_steps.types import GenerateRequest, SamplingParams, WeightsRef
from tests.support.rollout.canary import check_canary
from tests.support.rollout.cases import (
    ADAPTER_SYNCS,
    PARAMS,
    PROBE_IDS,
    PROMPTS_IDS,
    RANK,
    seeds,
)
from tests.support.rollout.vllm_shards import check_common_prompts, check_one_seed, plain

TOLERANCE = 1e-3
FUSED = (("self_attn.qkv_proj", 0), ("self_attn.qkv_proj", -1), ("mlp.gate_up_proj", -1))
"""vLLM's tensors of several published ones, and a row in each."""


def start(
    model: str, method: str = "volume", options: dict[str, Any] | None = None, **chosen: Any
) -> VllmEngine:
    return VllmEngine(
        model_path=model,
        model=ModelConfig(**chosen),
        rollout=RolloutConfig(weight_sync=method, engine_options=options or {}),
        tokenizer=lambda: None,  # vLLM reads its own
    )


def load(engine: VllmEngine, folder: str, method: str = "volume") -> None:
    """As a rollout worker does, but for the proofs."""
    engine.check(Path(folder))
    weight_sync(RolloutConfig(weight_sync=method)).load(engine, Path(folder))


def sample(engine: VllmEngine, params: SamplingParams) -> list[list[Any]]:
    return plain(engine.sample(PROMPTS_IDS, seeds(len(PROMPTS_IDS)), params))


def check_sync(method: str, engine: VllmEngine, *loads: str) -> list[dict[str, Any]]:
    """Samples and scores at first and after each load."""
    found = []
    for folder in (None, *loads):
        if folder is not None:
            load(engine, folder, method)
        found.append({"score": engine.score(PROBE_IDS), "sampled": sample(engine, PARAMS["plain"])})
    return found


def check_compared(engine: VllmEngine, folder: str) -> dict[str, Any]:
    """What is found of the tensors held, which are those in the folder, and of each with one bit
    flipped: by names of vLLM's own, and by a row of its fused tensors."""
    from safetensors.torch import load_file

    from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests

    digests = tensor_digests(load_file(Path(folder) / "model.safetensors").items())
    published = PublishedTensors(folder=Path(folder), digests=digests)
    engine._llm.collective_rpc, ask = _counted(engine._llm.collective_rpc)
    found: dict[str, Any] = {"whole": dict(engine.compare(published)), "names": sorted(digests)}
    found["asked"] = ask.copy()
    for name, row in FUSED:
        flip = f"model.layers.1.{name}.weight", row
        engine._llm.collective_rpc(_flip_a_bit, args=flip)
        found[f"{name} {row}"] = [n for n, same in engine.compare(published).items() if not same]
        engine._llm.collective_rpc(_flip_a_bit, args=flip)
    del engine._llm.collective_rpc
    return found


def _counted(ask: Any) -> tuple[Any, list[str]]:
    """Return the same, and the methods that it was asked to call."""
    asked: list[str] = []

    def noted(method: Any, **given: Any) -> Any:
        asked.append(str(method))
        return ask(method, **given)

    return noted, asked


def _flip_a_bit(worker: Any, name: str, row: int) -> None:
    import torch

    held = worker.model_runner.get_model().get_parameter(name).data
    held[row].view(torch.int32)[3] ^= 1


def check_params(engine: VllmEngine) -> dict[str, Any]:
    found: dict[str, Any] = {name: sample(engine, params) for name, params in PARAMS.items()}
    params = PARAMS["plain"]
    rows = list(zip(PROMPTS_IDS, seeds(len(PROMPTS_IDS)), strict=True))
    backwards = engine.sample(PROMPTS_IDS[::-1], seeds(len(PROMPTS_IDS))[::-1], params)[::-1]
    alone = [engine.sample([prompt], [seed], params)[0] for prompt, seed in rows]
    found["backwards"], found["alone"] = plain(backwards), plain(alone)
    found["other_seeds"] = plain(engine.sample(PROMPTS_IDS, seeds(len(PROMPTS_IDS))[::-1], params))
    found["dtype"], found["max_model_len"] = engine.dtype, engine.max_model_len
    return found


def check_stale_prefix_cache(engine: VllmEngine, first: str, other: str) -> dict[str, Any]:
    """What a reload with neither an empty prefix cache nor a salt gives, and what `load` gives."""
    greedy = SamplingParams(max_tokens=4, temperature=0.0)
    prompt = [PROMPTS_IDS[-1]]
    load(engine, first)
    engine._reset_prefix_cache, reset = lambda: None, engine._reset_prefix_cache
    engine._batches, salts = itertools.repeat(0), engine._batches
    engine.sample(prompt, [0], greedy)
    engine._llm.collective_rpc("reload_weights", kwargs={"weights_path": other})
    stale = plain(engine.sample(prompt, [0], greedy))
    engine._reset_prefix_cache, engine._batches = reset, salts
    load(engine, other)
    return {"stale": stale, "fresh": plain(engine.sample(prompt, [0], greedy))}


def check_failures(engine: VllmEngine, good: str, other_shape: str, empty: str) -> dict[str, Any]:
    """A folder that does not fit changes nothing; an update that fails midway is recovered."""
    found: dict[str, Any] = {"before": engine.score(PROBE_IDS)}
    for name, folder in (("other_shape", other_shape), ("empty", empty)):
        try:
            load(engine, folder, "reload")
        except EngineError as error:
            found[name] = str(error)
    try:
        engine.sample([[5] * 600], [0], PARAMS["plain"])
    except EngineError as error:
        found["too_long"] = str(error)
    found["still"] = engine.score(PROBE_IDS)

    def fail_midway(folder: Path) -> None:
        engine._llm.collective_rpc("no_such_method")

    engine.load = fail_midway
    load(engine, good, "reload")
    found["recovered"] = engine.score(PROBE_IDS)
    return found


def check_bfloat16(model: str) -> dict[str, Any]:
    engine = start(model, dtype="bfloat16", max_model_len=300)
    found = {
        "dtype": engine.dtype,
        "max_model_len": engine.max_model_len,
        "score": engine.score(PROBE_IDS),
    }
    engine.close()
    return found


def check_kernels(model: str) -> dict[str, Any]:
    """Return what vLLM makes of the options for a GPU, and of the setting for adapters there."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.lora.ops.triton_ops.utils import get_lora_op_configs

    config = EngineArgs(**platforms.with_fixed_kernels({"model": model})).create_engine_config()
    platforms.add_adapters_in_order()
    return {
        "inductor": config.compilation_config.inductor_compile_config,
        "autotune": config.kernel_config.enable_flashinfer_autotune,
        "split_k": get_lora_op_configs("shrink", 1, 16, 896, 16, 3)["split_k"],
    }


def check_newer_sampler() -> dict[str, list[str]]:
    """Return the parameters of the methods that `sampler.sampling_logits` builds on."""
    from vllm.v1.worker.gpu.sample.sampler import Sampler
    from vllm.v1.worker.gpu.sample.states import SamplingStates

    used = (Sampler.sample, SamplingStates.apply_temperature, SamplingStates.get_top_k_top_p)
    return {each.__name__: list(inspect.signature(each).parameters)[:5] for each in used}


def refusal(call: Any, *given: Any) -> str:
    try:
        call(*given)
    except MortalError as error:
        return f"{type(error).__name__}: {error}"
    return "none"


def check_adapters(model: str, folders: dict[str, str]) -> dict[str, Any]:
    """Return a whole model between two adapters; and adapters that do not fit."""
    options = VLLM_ADAPTERS.options_for(RANK)
    engine = start(model, "reload", options=options)

    def canary(name: str) -> str:
        return refusal(check_canary, engine, Path(folders[name]), TOLERANCE)

    found: dict[str, Any] = {"loaded": []}
    for name in ADAPTER_SYNCS:
        load(engine, folders[name], "reload")
        found["loaded"].append([canary(name), sample(engine, PARAMS["greedy"])])
    found["faults"] = {"new, not given": canary("v0")}
    found["faults"]["a tensor left out"] = refusal(load, engine, folders["fewer"])
    load(engine, folders["other_shape"])
    found["faults"]["other shape"] = canary("other_shape")
    engine.close()
    return found


def check_worker(engine: VllmEngine, worker: dict[str, Any]) -> dict[str, Any]:
    """Return a whole worker, given this engine: two versions, each shard sampled twice."""
    ready = RolloutWorker(
        run_dir=worker["run_dir"],
        model_path=worker["model_path"],
        plan=Plan(RunConfig(rollout=RolloutConfig(engine="vllm"))).sampler,
    )
    ready._engine = engine
    ready.start()
    requests = TypeAdapter(list[GenerateRequest]).validate_python(worker["requests"])
    references = [ready.generate(request=request) for request in requests]
    found = TypeAdapter(type(references)).dump_python(references, mode="json")
    try:
        ready.sync_weights(weights=TypeAdapter(WeightsRef).validate_python(worker["swapped"]))
        refusal = "none"
    except WeightsMismatchError as error:
        refusal = str(error)
    return {"references": found, "refusal": refusal}


def main(folders: dict[str, Any]) -> dict[str, Any]:
    a, b = folders["model_a"], folders["model_b"]
    found: dict[str, Any] = {}
    engine = start(a, "volume")
    found["volume"] = check_sync("volume", engine, b, a)
    found["compared"] = check_compared(engine, a)
    found["params"] = check_params(engine)
    found["common_prompts"] = check_common_prompts(engine)
    load(engine, a)
    one_seed = check_one_seed(engine, (1, 1, -1, 1))
    found["prefix_cache"] = check_stale_prefix_cache(engine, a, b)
    found["worker"] = check_worker(engine, folders["worker"])
    engine.close()
    engine = start(a, "reload")
    found["one_seed"] = one_seed + check_one_seed(engine, (1,))
    found["common_prompts_anew"] = check_common_prompts(engine)["first"]
    found["failures"] = check_failures(engine, b, folders["other_shape"], folders["empty"])
    engine.close()
    engine = start(folders["untied_a"], "reload")
    found["untied"] = check_sync("reload", engine, folders["untied_b"])
    engine.close()
    engine = start(folders["experts_a"], "reload")
    found["experts"] = check_sync("reload", engine, folders["experts_b"])
    engine.close()
    chunked = {"enable_chunked_prefill": True}
    found["chunked_prefill"] = refusal(start, a, "volume", chunked)
    found["bfloat16"] = check_bfloat16(a)
    found["kernels"] = check_kernels(a)
    found["newer_sampler"] = check_newer_sampler()
    found["adapters"] = check_adapters(a, folders["adapters"])
    return found


if __name__ == "__main__":
    answer = main(json.loads(sys.argv[1]))
    sys.stdout.write("\n" + json.dumps(answer) + "\n")
