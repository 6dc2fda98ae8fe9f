"""What a rollout worker asks of an inference engine: token ids in, token ids and logprobs out.

Every engine gives `SamplingParams` the same meaning. Filters apply in vLLM's order: temperature,
then min-p, then top-k, then top-p, each to what the one before it left. Temperature 0 takes the
most likely token and ignores the filters.

Logprobs are those of the whole vocabulary at the temperature (at temperature 0, those at 1),
whatever the filters have left. A trainer computes them again like that, and takes what differs for
a difference of weights or engines. Four tokens, of which `top_k = 2` leaves two:

    probabilities   [0.5, 0.3, 0.1, 0.1]
    drawn from      [0.625, 0.375, 0, 0]
    logprobs        log 0.5 or log 0.3
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.rollout.weight_sync.published import PublishedTensors
from mortal_steps.types import FinishReason, SamplingParams


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledTokens:
    """One completion as the engine sampled it."""

    token_ids: Sequence[int]
    """Sampled ids, the end-of-sequence token or stop string included; length T >= 1."""
    logprobs: Sequence[float]
    """Log-probability (nats) of each token over the whole vocabulary at the temperature; length
    T."""
    finish_reason: FinishReason


class Engine(Protocol):
    """A language model that samples and scores with one version of its weights.

    Methods that are not abstract have defaults.
    """

    dtype: str
    """Name of the weights' type, such as `float32`."""
    max_model_len: int
    """Longest prompt plus completion, in tokens."""

    def check(self, folder: Path) -> None:
        """Raise `EngineError` if the folder is known not to fit the model; nothing is loaded or
        changed. By default, `load` finds out."""

    @abstractmethod
    def load(self, folder: Path) -> None:
        """Replace the weights, in place, by those of a published version's folder: a whole model,
        or a LoRA adapter (`model_files.is_adapter`), which is computed with beside the model that
        the engine was built with.

        Raises `EngineError` where the folder does not fit the model. Another error is a failure
        midway, after which `restart` may help. Until the next successful `load` or `restart` the
        engine's weights are then undefined.
        """
        ...

    def compare(self, published: PublishedTensors) -> Mapping[str, bool]:
        """Of each published tensor that can be compared with the one that is held, by name, whether
        they are the same to the bit: `published.compared` of those that are held. For all other
        tensors, the log-probabilities are the only proof.

        One train step changes log-probabilities only a little, and a new adapter does not change
        them at all, so they cannot tell whether the weights were loaded. By default nothing is
        compared.
        """
        return {}

    def restart(self, folder: Path) -> None:
        """Build the engine anew with the weights in the folder. By default this is `load`."""
        self.load(folder)

    def release_memory(self) -> None:
        """Free the memory of weights and what was computed with them, before a `load`; by default
        nothing, as `load` overwrites them."""

    def resume_memory(self) -> None:
        """Get ready to sample after `release_memory` and `load`. By default nothing."""

    def sleep(self) -> None:
        """Free all memory that the next `load` or `restart` fills again; the engine does not sample
        before that. By default nothing is freed."""

    @abstractmethod
    def sample(
        self,
        prompts_ids: Sequence[Sequence[int]],
        seeds: Sequence[int],
        params: SamplingParams,
    ) -> list[SampledTokens]:
        """One completion per entry of `prompts_ids`, each drawn with its own seed."""
        ...

    @abstractmethod
    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Logprobs at temperature 1 of all tokens but the first; length `len(token_ids) - 1`."""
        ...

    def close(self) -> None:
        """Free the memory; the engine is not used afterwards. By default nothing."""


class EngineFactory(Protocol):
    """What an entry of `ENGINES` names: it builds the engine with the model that the run begins
    with.

    A rollout worker calls it before anything there imports torch, so that an engine can set the
    environment that torch reads. `tokenizer` is a function that reads the model's tokenizer. Raises
    `EngineError` if the engine does not start, `ModelError` for an unreadable model.
    """

    def __call__(
        self,
        *,
        model_path: str,
        model: ModelConfig,
        rollout: RolloutConfig,
        tokenizer: Callable[[], Any],
    ) -> Engine: ...


def context_length(model_config: Any, max_model_len: int) -> int:
    """`max_model_len`, or the context length of the model if that is shorter."""
    own = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    return min(max_model_len, own) if own else max_model_len
