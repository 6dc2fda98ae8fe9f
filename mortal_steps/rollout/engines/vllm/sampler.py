"""Let vLLM report log-probabilities over the whole vocabulary at the temperature.

vLLM has two kinds of them: those of the logits as the model gives them, without temperature, and
those of what a token is drawn from (`processed_logprobs`), after temperature and filters. A trainer
computes neither again where top-k, top-p or min-p acts at a temperature other than 1. The samplers
are therefore asked for the second kind, and report in its place, where a filter acts, what the
temperature alone makes of the logits. Where none acts, nothing is computed besides.

Names used here that vLLM does not publish: `Sampler.sample` and `apply_temperature` of its two
model runners, with the states that they sample by.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

Sample = Callable[..., tuple[torch.Tensor, torch.Tensor | None]]
"""A sampler's method that draws tokens, and returns the values from which log-probabilities are
read."""


def report_whole_vocabulary(*, on_cpu: bool) -> None:
    """Replace that method of the samplers of this process; on a CPU, vLLM has one of the two."""
    from vllm.v1.sample.sampler import Sampler

    _replace(Sampler, sampling_logprobs)
    if not on_cpu:
        from vllm.v1.worker.gpu.sample.sampler import Sampler as NewerSampler

        _replace(NewerSampler, sampling_logits)


def _replace(sampler: Any, replaced_by: Callable[[Sample], Sample]) -> None:
    if not hasattr(sampler.sample, "__wrapped__"):
        sampler.sample = replaced_by(sampler.sample)


def sampling_logprobs(sample: Sample) -> Sample:
    """Of the older model runner, which reads log-probabilities from all of a position's; it may
    write into the logits."""

    @functools.wraps(sample)
    def sample_anew(
        self: Any, logits: torch.Tensor, metadata: Any, *args: Any, **options: Any
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        processors = metadata.logitsprocs.argmax_invariant
        filters = metadata.top_k is not None or metadata.top_p is not None
        if not filters and not any(getattr(each, "min_p_count", 0) for each in processors):
            return sample(self, logits, metadata, *args, **options)
        temperature, all_random = metadata.temperature, metadata.all_random
        scaled = self.apply_temperature(logits.clone(), temperature, all_random)
        tokens, reported = sample(self, logits, metadata, *args, **options)
        return tokens, None if reported is None else self.compute_logprobs(scaled)

    return sample_anew


def sampling_logits(sample: Sample) -> Sample:
    """Of the newer model runner, which computes a token's log-probability from logits."""

    @functools.wraps(sample)
    def sample_anew(
        self: Any,
        logits: torch.Tensor,
        expanded_idx_mapping: torch.Tensor,
        idx_mapping: torch.Tensor,
        idx_mapping_np: Any,
        *args: Any,
        **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        states = self.sampling_states
        rows = expanded_idx_mapping, idx_mapping_np
        filters = any(each is not None for each in states.get_top_k_top_p(*rows))
        filters = filters or bool((states.min_p.np[idx_mapping_np] != 0).any())
        scaled = logits.to(torch.float32, copy=True) if filters else None
        if scaled is not None:
            states.apply_temperature(scaled, *rows)
        given = logits, expanded_idx_mapping, idx_mapping, idx_mapping_np
        tokens, reported = sample(self, *given, *args, **options)
        return tokens, reported if scaled is None else scaled

    return sample_anew
