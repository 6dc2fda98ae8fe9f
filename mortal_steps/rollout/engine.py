"""What a rollout worker asks of an inference engine: token ids in, token ids and logprobs out.

Every engine gives `SamplingParams` the same meaning. Filters apply in vLLM's order: temperature,
then min-p, then top-k, then top-p, each to what the one before it left. Temperature 0 takes the
most likely token, ignores the filters and reports logprobs at temperature 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

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
    """A language model that samples and scores with one version of its weights."""

    dtype: str
    """Name of the weights' type, such as `float32`."""
    max_model_len: int
    """Longest prompt plus completion, in tokens."""

    def load(self, folder: Path) -> None:
        """Replace the weights by those of a published version's folder.

        Raises `EngineError` where the folder does not fit the model. Until the next successful
        `load` the engine's weights are then undefined.
        """
        ...

    def sample(
        self,
        prompts_ids: Sequence[Sequence[int]],
        seeds: Sequence[int],
        params: SamplingParams,
    ) -> list[SampledTokens]:
        """One completion per entry of `prompts_ids`, each drawn with the seed of its own."""
        ...

    def score(self, token_ids: Sequence[int]) -> list[float]:
        """Logprobs at temperature 1 of tokens 1.. given all before; length `len(token_ids) - 1`."""
        ...

    def close(self) -> None:
        """Give back the memory; the engine is of no use afterwards."""
        ...


def context_length(model_config: Any, max_model_len: int) -> int:
    """`max_model_len`, or the context that the model was made for where that is shorter."""
    own = getattr(model_config.get_text_config(), "max_position_embeddings", None)
    return min(max_model_len, own) if own else max_model_len
