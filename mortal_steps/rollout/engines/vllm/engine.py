"""The `vllm` engine: an in-process `LLM`. Only modules of this package import vLLM.

What vLLM does by default and this engine does not:

- After a weight reload the prefix cache still holds keys and values of the old weights: it is
  emptied at every load. It is also emptied before every batch, so that a batch is computed the
  same way whatever came before it; and a salt of its own keeps each batch from others' entries.
- On CPU, layers keep prepacked copies of their weights, which a reload leaves stale where the
  embeddings are tied: prepacking is switched off (0 to 30 % slower).
- On CPU, a seeded request in a chunked prefill ends the engine: prefills are never chunked.
- Logprobs are those of the whole vocabulary at the temperature (sampler.py), not at temperature 1.
- Temperatures below 0.01 are raised to 0.01; the other engine takes them as they are.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.errors import EngineError
from mortal_steps.models.model_class import read_model_config
from mortal_steps.rollout.engines.base import (
    Engine,
    SampledTokens,
    context_length,
)
from mortal_steps.rollout.engines.model_files import (
    TensorShapes,
    check_shapes,
    is_adapter,
    tensor_shapes,
)
from mortal_steps.rollout.engines.vllm import library, platforms
from mortal_steps.rollout.engines.vllm.adapter import VllmAdapters
from mortal_steps.rollout.engines.vllm.library import supervised
from mortal_steps.rollout.weight_sync.base import weight_sync
from mortal_steps.rollout.weight_sync.published import PublishedTensors
from mortal_steps.schedule import derive_seed
from mortal_steps.types import SamplingParams

WITNESS = "mortal_steps.rollout.engines.vllm.witness.Witness"
"""Class for the option `worker_extension_cls` of an `LLM`."""


class VllmEngine(Engine):
    """Samples with vLLM on the GPU if there is one, else on the CPU.

    `rollout.engine_options` are passed on to `LLM(...)` and win over what is set here. Building
    the engine resets the process's torch random state and fixes its thread count. Raises
    `EngineError` where vLLM is missing or does not start, `ModelError` for an unreadable model.
    """

    def __init__(
        self,
        *,
        model_path: str,
        model: ModelConfig,
        rollout: RolloutConfig,
        tokenizer: Callable[[], Any],
    ) -> None:
        """vLLM reads the tokenizer itself; `tokenizer` is not called."""
        self._vllm, self.on_cpu = library.import_vllm()
        self._model_config = read_model_config(model_path, model.trust_remote_code)
        self._tied = bool(self._model_config.get_text_config().tie_word_embeddings)
        self.max_model_len = context_length(self._model_config, model.max_model_len)
        takes_adapters = bool(rollout.engine_options.get("enable_lora"))
        # A sleeping engine would lose the base of its adapters.
        self._sleeps = weight_sync(rollout).releases_memory and not takes_adapters
        self._sleep_level = 1 if takes_adapters else 2
        self._asleep = False
        self._options = self._options_for(model_path, model, rollout)
        self._base_path = model_path
        self._model_path: str | None = model_path
        """Folder from which the weights were read; None while the weights are undefined."""
        self._adapters = VllmAdapters()
        self._batches = itertools.count()
        self._one_seed = rollout.seeds == "engine"
        self._llm = self._start(model_path)
        # Imported where vLLM has imported torch.
        from mortal_steps.rollout.engines.vllm import weights

        self._comparable = weights.comparable_tensors(self._llm, Path(model_path))
        self._shapes = tensor_shapes(Path(model_path), required=False)
        self._is_published = False
        """Whether the weights are a published version's, under the names that the actor gives
        tensors."""
        self.dtype = str(self._llm.llm_engine.model_config.dtype).removeprefix("torch.")

    def _options_for(
        self, model_path: str, model: ModelConfig, rollout: RolloutConfig
    ) -> dict[str, Any]:
        """Of the `LLM`. Raises `EngineError` for what cannot be had on a CPU."""
        settings = self._model_config.get_text_config().to_dict()
        options = {
            "tokenizer": model_path,
            "dtype": model.dtype,
            "trust_remote_code": model.trust_remote_code,
            "max_model_len": self.max_model_len,
            "logprobs_mode": "processed_logprobs",
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            **(platforms.cpu_options(settings, self.max_model_len) if self.on_cpu else {}),
            "enable_sleep_mode": (self._sleeps or rollout.sleep_while_training) and not self.on_cpu,
            "worker_extension_cls": WITNESS,
            **rollout.engine_options,
        }
        if self.on_cpu:
            platforms.fit_to_cpu(options, rollout)
            return options
        return platforms.with_fixed_kernels(options)

    def check(self, folder: Path) -> None:
        """Raise `EngineError` unless the tensors are the model's; vLLM checks adapters."""
        if is_adapter(folder):
            return
        self._check_shapes(tensor_shapes(folder), folder)

    @supervised
    def load(self, folder: Path) -> None:
        """Replace the weights or the adapter; forget what the old ones computed."""
        self._wake_up()
        if not is_adapter(folder):
            self._load_model(str(folder))
        else:
            if self._model_path != self._base_path:
                self._load_model(self._base_path)
            self._adapters.load(self._llm, folder)
        self._reset_prefix_cache()

    @supervised
    def compare(self, published: PublishedTensors) -> Mapping[str, bool]:
        """Of the adapter's modules, or of the model's tensors that vLLM has where `load_weights`
        puts them."""
        from mortal_steps.rollout.engines.vllm import weights

        if is_adapter(published.folder):
            return self._adapters.compare(self._llm, published)
        if published.shapes.keys() - self._shapes.keys():
            # The model that was read calls them otherwise.
            self._comparable |= weights.comparable_tensors(self._llm, published.folder)
        if not self._comparable:
            return {}
        found = weights.compare(self._llm, published, self._comparable)
        if all(found.values()):
            self._shapes, self._is_published = published.shapes, True
        return found

    def restart(self, folder: Path) -> None:
        """Start vLLM anew with the folder; raises `EngineError` if it does not start, and
        `UnusableProcessError` if only another process can start one."""
        library.wake_wholly(self._llm)
        # A wedged engine may also refuse to shut down; a new one is wanted all the same.
        with contextlib.suppress(Exception):
            self.close()
        self._adapters.forget()
        self._asleep = False
        self._model_path = self._base_path if is_adapter(folder) else str(folder)
        self._llm = self._start(self._model_path)
        if is_adapter(folder):
            self._adapters.load(self._llm, folder)

    def release_memory(self) -> None:
        """Sleep, then take memory for weights alone; the base of adapters stays."""
        if self._sleeps:
            if not self._asleep:
                self._llm.sleep(level=2)
            self._asleep = False
            self._llm.wake_up(tags=["weights"])

    def resume_memory(self) -> None:
        """Take memory for keys and values again, and forget those of the old weights."""
        if self._sleeps:
            self._llm.wake_up(tags=["kv_cache"])
        self._reset_prefix_cache()

    @supervised
    def sleep(self) -> None:
        """Drop keys, values and weights, but for the base of adapters, which goes to the host's
        memory. On a CPU this only pauses the scheduler."""
        self._llm.sleep(level=self._sleep_level)
        self._asleep = True

    @supervised
    def sample(
        self,
        prompts_ids: Sequence[Sequence[int]],
        seeds: Sequence[int],
        params: SamplingParams,
    ) -> list[SampledTokens]:
        """One completion per entry; vLLM batches them as memory allows. With `rollout.seeds =
        "engine"`, all of them are drawn from a stream that is seeded with all seeds together."""
        requests = [
            library.request(self._vllm, params, None if self._one_seed else seed) for seed in seeds
        ]
        self._reset_prefix_cache()
        if self._one_seed:
            self._llm.collective_rpc(library.seed_worker, args=(derive_seed("engine", *seeds),))
        outputs = self._generate(prompts_ids, requests)
        return [library.sampled_tokens(output.outputs[0]) for output in outputs]

    @supervised
    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Logprobs at temperature 1 of tokens 1.. given all before."""
        request = self._vllm.SamplingParams(
            max_tokens=1, temperature=0.0, prompt_logprobs=0, detokenize=False
        )
        # vLLM samples at least one token: the last token is scored, not extended.
        found = self._generate([token_ids], [request])[0].prompt_logprobs
        rest = zip(found[1:], token_ids[1:], strict=True)
        return [position[token].logprob for position, token in rest]

    def close(self) -> None:
        """End the engine and give back its memory."""
        library.wake_wholly(self._llm)
        self._llm.llm_engine.engine_core.shutdown()
        del self._llm
        gc.collect()
        if not self.on_cpu:
            import torch

            torch.cuda.empty_cache()

    def _wake_up(self) -> None:
        if self._asleep:
            self._llm.wake_up()
            self._asleep = False

    def _check_shapes(self, found: TensorShapes, origin: Path | str) -> None:
        by_name = self._is_published
        check_shapes(found, self._shapes, tied=self._tied, folder=origin, by_name=by_name)

    def _load_model(self, path: str) -> None:
        """Read a whole model over the weights; vLLM forgets adapters with that."""
        self._model_path = None
        self._adapters.forget()
        self._llm.collective_rpc("reload_weights", kwargs={"weights_path": path})
        self._model_path = path

    def _generate(self, prompts_ids: Sequence[Sequence[int]], requests: list[Any]) -> list[Any]:
        salt = str(next(self._batches))
        prompts = [{"prompt_token_ids": list(ids), "cache_salt": salt} for ids in prompts_ids]
        try:
            outputs: list[Any] = self._llm.generate(
                prompts, requests, use_tqdm=False, lora_request=self._adapters.request
            )
        except Exception as error:
            raise EngineError(
                f"vLLM refused a batch of {len(prompts)} prompts: {library.message_of(error)}"
            ) from error
        return outputs

    def _start(self, model: str) -> Any:
        try:
            return self._vllm.LLM(model=model, **self._options)
        except Exception as error:
            options = {key: value for key, value in self._options.items() if key != "tokenizer"}
            reason = library.message_of(error)
            raise EngineError(
                f"vLLM does not start with {model}: {reason}\nIts options were "
                f"{options}; change them through rollout.engine_options and model.max_model_len"
            ) from error

    def _reset_prefix_cache(self) -> None:
        if not self._llm.reset_prefix_cache():
            raise EngineError("vLLM did not empty its prefix cache: requests are still running")
