"""What a rollout worker asks of an inference engine: token ids in, token ids and logprobs out.

Every engine gives `SamplingParams` the same meaning. Filters apply in vLLM's order: temperature,
then min-p, then top-k, then top-p, each to what the one before it left. Temperature 0 takes the
most likely token, ignores the filters and reports logprobs at temperature 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.errors import EngineError, ModelError, WeightsMismatchError
from mortal_steps.store.tensor_layout import Layout
from mortal_steps.types import FinishReason, SamplingParams


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledTokens:
    """One completion as the engine sampled it."""

    token_ids: Sequence[int]
    """Sampled ids, the end-of-sequence token or stop string included; length T >= 1."""
    logprobs: Sequence[float]
    """Log-probability (nats) of each token under the distribution sampled from; length T."""
    finish_reason: FinishReason


class Engine(Protocol):
    """A language model that samples and scores with one version of its weights.

    What is not abstract has a default that engines inherit.
    """

    dtype: str
    """Name of the weights' type, such as `float32`."""
    max_model_len: int
    """Longest prompt plus completion, in tokens."""
    on_cpu: bool = False
    """Whether it computes with the processor's cores: its threads and one that hashes beside them
    make each other wait."""

    def check(self, folder: Path) -> None:
        """Raise `EngineError` where it is known before loading that the folder does not fit the
        model; nothing is changed. By default `load` finds out."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Replace the weights, in place, by those of a published version's folder: a whole model,
        or a LoRA adapter (`adapter_files.is_adapter`), which is computed with beside the model that
        the engine was built with.

        Raises `EngineError` where the folder does not fit the model. Another error is a failure
        midway, after which `restart` may help. Until the next successful `load` or `restart` the
        engine's weights are then undefined.
        """
        ...

    def load_tensors(self, tensors: Mapping[str, Any]) -> None:
        """Replace the weights, in place, by copies of these tensors (torch's), which go by the
        names of a published version's file. What `load` says of errors holds here as well. By
        default an engine cannot."""
        raise EngineError(
            f"{type(self).__name__} takes weights from files alone: it has no load_tensors. Set "
            "rollout.weight_sync to 'reload', 'volume' or 'checkpoint'"
        )

    def verify(self, folder: Path) -> None:
        """Raise `WeightsMismatchError` where what is held is known not to be what is in the folder.

        One step changes little in the log-probabilities, a new adapter nothing, so that these
        cannot tell whether it was loaded. By default nothing: they are the proof.
        """

    def verify_tensors(self, tensors: Mapping[str, Any], origin: str) -> None:
        """The same of tensors that `load_tensors` took, which lie at `origin`. By default
        nothing."""

    def compared(self, names: Collection[str]) -> Collection[str]:
        """Those of a published version's tensors, given by name, that `verify` and `verify_tensors`
        compare; for the others, the log-probabilities are the proof. By default all of them where
        there is a `verify`, and none where there is not."""
        return () if type(self).verify is Engine.verify else names

    def holds_as_in_file(self, layout: Layout) -> bool:
        """Whether the tensors of a safetensors file with this layout, once they are loaded, lie in
        the CPU's memory as they do in the file, so that `digest_of_held` proves them. By default
        not: then the file is hashed, and its tensors are compared by `verify`."""
        return False

    def digest_of_held(self, layout: Layout) -> str:
        """`blake3:<hex>` of the file with this layout, made of the tensors that are held: equal to
        the file's, it proves them all at once. Empty where they do not lie as in it, as by
        default."""
        return ""

    def restart(self, folder: Path) -> None:
        """Be built anew, with the weights in the folder. By default the same as `load`."""
        self.load(folder)

    def release_memory(self) -> None:
        """Give back the memory of the weights and of what was computed with them; `load` follows.

        By default nothing: `load` overwrites the old weights."""

    def resume_memory(self) -> None:
        """Be able to sample again after `release_memory` and `load`. By default nothing."""

    def sleep(self) -> None:
        """Give back all memory that can be had again with the next `load`, `load_tensors` or
        `restart`; nothing is sampled before. By default nothing is given back."""

    @abstractmethod
    def sample(
        self,
        prompts_ids: Sequence[Sequence[int]],
        seeds: Sequence[int],
        params: SamplingParams,
    ) -> list[SampledTokens]:
        """One completion per entry of `prompts_ids`, each drawn with the seed of its own."""
        ...

    @abstractmethod
    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Logprobs at temperature 1 of tokens 1.. given all before; length `len(token_ids) - 1`."""
        ...

    def close(self) -> None:
        """Give back the memory; the engine is of no use afterwards. By default nothing."""


class EngineFactory(Protocol):
    """What an entry of `ENGINES` names: it builds the engine with the model that a run begins with.

    A rollout worker calls it before anything there imports torch, so that an engine can set the
    environment that torch reads. `tokenizer` reads the model's tokenizer when it is called. Raises
    `EngineError` where the engine does not start, `ModelError` for an unreadable model.
    """

    def __call__(
        self,
        *,
        model_path: str,
        model: ModelConfig,
        rollout: RolloutConfig,
        tokenizer: Callable[[], Any],
    ) -> Engine:
        """The engine."""
        ...


def other_tensors(origin: str, names: Sequence[str]) -> WeightsMismatchError:
    """What `Engine.verify` raises for tensors of these names, which lie at `origin`."""
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return WeightsMismatchError(
        f"the engine does not hold the tensors of {origin} (other or missing: {names[0]}{more}). "
        'Try another rollout.weight_sync or, for an adapter, training.lora.publish = "merged"'
    )


def read_model_config(model_path: str, trust_remote_code: bool) -> Any:
    """The model's configuration, a transformers `PretrainedConfig`; raises `ModelError`."""
    from transformers import AutoConfig

    try:
        return AutoConfig.from_pretrained(model_path, trust_remote_code=trust_remote_code)
    except (OSError, ValueError) as error:
        raise ModelError(f"cannot read the model {model_path}: {error}") from error


def context_length(model_config: Any, max_model_len: int) -> int:
    """`max_model_len`, or the context that the model was made for where that is shorter."""
    own = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    return min(max_model_len, own) if own else max_model_len
