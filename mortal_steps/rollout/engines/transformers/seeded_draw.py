"""How the `transformers` engine draws a token: with a uniform of its completion's own stream."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import (
    LogitsProcessor,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from mortal_steps.types import SamplingParams

UNIFORMS_PER_BLOCK = 64


class SeededDraw(LogitsProcessor):  # type: ignore[misc]
    """Draws each row's next token with its own uniforms, and forces it on a greedy search; `tokens`
    and `logprobs` collect, per step, a tensor of shape (B,).

    The token is drawn from what the filters leave; its log-probability is the one over the whole
    vocabulary at the temperature, which a trainer computes again.
    """

    def __init__(self, seeds: Sequence[int], params: SamplingParams) -> None:
        self.tokens: list[torch.Tensor] = []
        self.logprobs: list[torch.Tensor] = []
        self._greedy = params.temperature == 0
        self._temperature = _temperature(params)
        self._filters = _filters(params)
        self._streams = [np.random.Generator(np.random.Philox(key=seed)) for seed in seeds]
        self._uniforms_BU = np.empty((len(seeds), 0))

    def __call__(self, input_ids: torch.LongTensor, scores: torch.FloatTensor) -> torch.FloatTensor:
        """Scores (B, V) that are 0 at the drawn token and -inf elsewhere."""
        scaled_BV = self._temperature(input_ids, scores)
        # In double precision, so that a rounding error never hides an unlikely token.
        logprobs_BV = scaled_BV.double().log_softmax(dim=-1)
        if self._greedy:
            tokens_B1 = logprobs_BV.argmax(dim=-1, keepdim=True)
        else:
            drawn_from_BV = logprobs_BV
            if self._filters:
                kept_BV = self._filters(input_ids, scaled_BV)
                drawn_from_BV = kept_BV.double().log_softmax(dim=-1)
            tokens_B1 = invert_cdf(drawn_from_BV, self._next_uniforms(scores.device))
        self.tokens.append(tokens_B1.squeeze(1))
        self.logprobs.append(logprobs_BV.gather(1, tokens_B1).squeeze(1))
        return torch.full_like(scores, -torch.inf).scatter_(1, tokens_B1, 0.0)

    def _next_uniforms(self, device: torch.device) -> torch.Tensor:
        """Return the next position's uniforms, one per row, drawn in blocks."""
        position = len(self.tokens) % UNIFORMS_PER_BLOCK
        if position == 0:
            blocks = [stream.random(UNIFORMS_PER_BLOCK) for stream in self._streams]
            self._uniforms_BU = np.stack(blocks)
        return torch.from_numpy(self._uniforms_BU[:, position]).to(device)


def invert_cdf(logprobs_BV: torch.Tensor, uniforms_B: torch.Tensor) -> torch.Tensor:
    """Return each row's token at which the cumulative probability first exceeds the uniform; shape
    (B, 1)."""
    cumulative_BV = logprobs_BV.exp().cumsum(dim=-1)
    total_B1 = cumulative_BV[:, -1:]
    # Rounding may lift uniform x total to the total itself; just below it still has a token.
    target_B1 = torch.minimum(uniforms_B[:, None] * total_B1, total_B1.nextafter(total_B1 * 0))
    return torch.searchsorted(cumulative_BV, target_B1, right=True)


def _temperature(params: SamplingParams) -> LogitsProcessorList:
    """Return transformers' warper of the temperature, if it does something."""
    if params.temperature in (0, 1):
        return LogitsProcessorList()
    return LogitsProcessorList([TemperatureLogitsWarper(params.temperature)])


def _filters(params: SamplingParams) -> LogitsProcessorList:
    """Return transformers' own filters, those that do something, in the order base.py states."""
    filters: list[LogitsProcessor] = []
    if params.min_p > 0:
        filters.append(MinPLogitsWarper(params.min_p))
    if params.top_k > 0:
        filters.append(TopKLogitsWarper(params.top_k))
    if params.top_p < 1:
        filters.append(TopPLogitsWarper(params.top_p))
    return LogitsProcessorList(filters)
