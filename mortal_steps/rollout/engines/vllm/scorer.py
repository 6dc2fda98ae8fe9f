"""What a model gives to tokens that others have written, by vLLM: their log-probabilities, and the
likeliest tokens of each position.

What vLLM does by default and this does not:

- Log-probabilities of a prompt are those at temperature 1: a model's logits are divided by the
  temperature before vLLM reads them.
- Prefixes are cached. vLLM reads none of them where it computes log-probabilities of a prompt, so
  keeping them would only cost.
- A tokenizer is read, which some teachers do not have, and nothing here needs.

Names used here that vLLM does not publish: the worker's `model_runner`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from mortal_steps.config import ModelConfig
from mortal_steps.errors import EngineError
from mortal_steps.models.model_class import read_model_config
from mortal_steps.rollout.engines.base import context_length
from mortal_steps.rollout.engines.vllm import library, platforms

DIVIDER = "mortal_steps.rollout.engines.vllm.divider.Divider"
"""Class for the option `worker_extension_cls` of an `LLM`."""


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ScoredTokens:
    """Log-probabilities (nats) over the whole vocabulary at the temperature, of T tokens."""

    sampled_T: Any
    """float32; of each token, given those before it."""
    top_TK: Any
    """float32; of the likeliest tokens at its position, the likeliest first."""
    top_ids_TK: Any
    """int64; token ids of these."""


class VllmScorer:
    """One model, whose weights stay as they are. `options` are passed on to `LLM(...)` and win over
    what is set here.

    Raises `EngineError` where vLLM is missing, `ModelError` for an unreadable model. `start` loads
    the weights.
    """

    def __init__(
        self,
        folder: str,
        model: ModelConfig,
        *,
        temperature: float,
        options: Mapping[str, Any],
    ) -> None:
        self._vllm, self.on_cpu = library.import_vllm()
        config = read_model_config(folder, model.trust_remote_code)
        settings = config.get_text_config()
        self.vocabulary = int(settings.vocab_size)
        longest = options.get("max_model_len") or context_length(config, model.max_model_len)
        self.max_model_len = int(longest)
        fixed: dict[str, Any] = {
            "dtype": model.dtype,
            "trust_remote_code": model.trust_remote_code,
            "max_model_len": self.max_model_len,
            "max_logprobs": -1,  # as many as there are tokens
            "skip_tokenizer_init": True,
            "disable_log_stats": True,
            "use_tqdm_on_load": False,
            **(platforms.cpu_options(settings.to_dict(), longest) if self.on_cpu else {}),
            "enable_prefix_caching": False,
            "worker_extension_cls": DIVIDER,
            **options,
        }
        if self.on_cpu:
            fixed.pop("gpu_memory_utilization", None)  # CPU memory is the bound there
        else:
            fixed = platforms.with_fixed_kernels(fixed)
        self._folder, self._options, self._temperature = folder, fixed, temperature

    def start(self) -> None:
        """Start vLLM. Raises `EngineError`."""
        try:
            self._llm = self._vllm.LLM(model=self._folder, **self._options)
        except Exception as error:
            raise EngineError(
                f"vLLM does not start with {self._folder}: {library.message_of(error)}\nIts "
                f"options were {self._options}"
            ) from error
        if self._temperature != 1:
            self._llm.collective_rpc("divide_logits", args=(self._temperature,))

    def score(
        self, sequences: Sequence[tuple[Sequence[int], int]], count: int
    ) -> list[ScoredTokens]:
        """Return what each sequence of tokens has from a number of them on, given all before. The
        first token of a sequence has nothing before it, and a sequence is shorter than
        `max_model_len`, because vLLM samples a token at its end. Raises `EngineError`."""
        request = self._vllm.SamplingParams(
            max_tokens=1,
            temperature=0.0,
            prompt_logprobs=count,
            detokenize=False,
            flat_logprobs=True,
        )
        prompts = [{"prompt_token_ids": list(ids)} for ids, _ in sequences]
        try:
            outputs = self._llm.generate(prompts, [request] * len(prompts), use_tqdm=False)
        except Exception as error:
            library.check_processes(self._llm, error)
            raise EngineError(
                f"vLLM refused {len(prompts)} sequences of tokens: {library.message_of(error)}"
            ) from error
        found = zip(outputs, sequences, strict=True)
        return [_read(each.prompt_logprobs, first, len(ids), count) for each, (ids, first) in found]


def _read(flat: Any, first: int, length: int, count: int) -> ScoredTokens:
    """Return what vLLM says of the tokens from `first` on: at each position of its own token, and
    after that of the likeliest ones, the own once more if it is one of these."""
    starts, ends = numpy.array(flat.start_indices[first:]), numpy.array(flat.end_indices[first:])
    if len(flat.start_indices) != length or (ends - starts != count + 1).any():
        raise EngineError(
            f"vLLM says log-probabilities at {len(flat.start_indices)} positions of {length} "
            f"tokens, and {count + 1} of them were asked for at each"
        )
    among = slice(starts[0], ends[-1])
    logprobs = numpy.array(flat.logprobs[among], numpy.float32).reshape(-1, count + 1)
    ids = numpy.array(flat.token_ids[among], numpy.int64).reshape(-1, count + 1)
    return ScoredTokens(sampled_T=logprobs[:, 0], top_TK=logprobs[:, 1:], top_ids_TK=ids[:, 1:])
