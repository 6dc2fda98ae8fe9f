"""The trainer behind `algorithm.type = "atropos"` (atropos.py).

A micro-batch of two sequences, as the model is given it: inputs without the last token, labels
without the first, padded to a multiple of 64.

    tokens   [5 9 7 2]     inputs  [5 9 7 0 ...]    labels  [9 7 2 0 ...]    trained  [0 1 1 0 ...]
             [5 8 3]               [5 8 0 0 ...]            [8 3 0 0 ...]             [0 1 0 0 ...]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from trl import GRPOTrainer

from mortal_steps.atropos.groups import Group, ScoredSequence, sequences_of
from mortal_steps.errors import BatchSourceError
from mortal_steps.policy import private

MULTIPLE = 64
"""Lengths that GPUs compute fast with."""
MOST_DIFFERENCE = 20.0
"""Nats between two log-probabilities of a token of which the ratio is still taken."""


class ScoredGroupsTrainer(GRPOTrainer):  # type: ignore[misc]
    """GRPOTrainer on sequences that came with their scores."""

    algorithm: Any
    _rows_seen: Sequence[Mapping[str, Any]] | None = None
    _sequences: list[ScoredSequence]

    def _prepare_inputs(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        if rows is not self._rows_seen:
            groups = [Group.model_validate(row) for row in rows]
            self._sequences = [each for group in groups for each in sequences_of(group)]
            self._rows_seen = rows
            num_trained = sum(sum(each.trained) for each in self._sequences)
            private.log_metric(self, "num_trained_tokens", num_trained)
        count = self.args.steps_per_generation
        size, rest = divmod(len(self._sequences), count)
        if rest:
            raise BatchSourceError(
                f"a batch of {len(self._sequences)} sequences does not divide into {count} "
                "micro-batches"
            )
        start = size * (private.micro_step(self) % count)
        return padded(self._sequences[start : start + size], self.args.device)

    def _compute_loss(self, model: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        logits = model(
            input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], use_cache=False
        ).logits
        scaled = logits.float() / inputs["temperature"]
        logprobs = scaled.log_softmax(-1).gather(-1, inputs["labels"][..., None]).squeeze(-1)
        loss, measured = clipped_loss(logprobs, inputs, self.algorithm.clip_eps)
        for name, value in measured.items():
            private.log_metric(self, name, value)
        return loss / self.current_gradient_accumulation_steps


def clipped_loss(
    logprobs: torch.Tensor, inputs: Mapping[str, torch.Tensor], clip_eps: float
) -> tuple[torch.Tensor, dict[str, float]]:
    """Return a micro-batch's loss and what is logged of it; `logprobs` are the policy's now, and
    stand for the sampler's where those are unknown."""
    trained, advantages = inputs["trained"], inputs["advantages"]
    old = torch.where(inputs["has_logprobs"], inputs["logprobs"], logprobs.detach())
    difference = (logprobs - old).masked_fill(trained == 0, 0.0)
    ratio = difference.clamp(-MOST_DIFFERENCE, MOST_DIFFERENCE).exp()
    clipped = ratio.clamp(1 - clip_eps, 1 + clip_eps)
    gained = torch.minimum(ratio * advantages, clipped * advantages)
    lengths = trained.sum(1)
    loss = -((gained * trained).sum(1) / lengths.clamp(min=1)).mean()
    num_trained = lengths.sum().clamp(min=1)
    is_clipped = (clipped * advantages < ratio * advantages) & (trained > 0)
    measured = {
        "reward": inputs["score"].mean(),
        "completions/mean_length": lengths.mean(),
        "clip_ratio": is_clipped.sum() / num_trained,
        "frac_without_advantage": ((advantages * trained).abs().sum(1) == 0).float().mean(),
        "sampling/sampling_logp_difference/mean": difference.abs().sum() / num_trained,
        "sampling/sampling_logp_difference/max": difference.abs().max(),
    }
    return loss, {name: value.detach().item() for name, value in measured.items()}


def padded(
    sequences: Sequence[ScoredSequence], device: torch.device | str
) -> dict[str, torch.Tensor]:
    """Return a micro-batch as the loss takes it."""
    longest = max(len(each.tokens) for each in sequences) - 1
    width = -(-longest // MULTIPLE) * MULTIPLE

    def rows(
        values_of: Callable[[ScoredSequence], Sequence[float]], dtype: torch.dtype
    ) -> torch.Tensor:
        made = torch.zeros(len(sequences), width, dtype=dtype)
        for row, each in zip(made, sequences, strict=True):
            values = torch.tensor(list(values_of(each)), dtype=dtype)
            row[: len(values)] = values
        return made.to(device)

    def numbers(values: Sequence[Any], dtype: torch.dtype, *axes: int) -> torch.Tensor:
        return torch.tensor(values, dtype=dtype, device=device).view(len(sequences), *axes)

    floats = torch.float32
    return {
        "input_ids": rows(lambda each: each.tokens[:-1], torch.long),
        "attention_mask": rows(lambda each: [1] * (len(each.tokens) - 1), torch.long),
        "labels": rows(lambda each: each.tokens[1:], torch.long),
        "trained": rows(lambda each: each.trained[1:], floats),
        "advantages": rows(lambda each: each.advantages[1:], floats),
        "logprobs": rows(lambda each: (each.logprobs or [])[1:], floats),
        "has_logprobs": numbers([each.logprobs is not None for each in sequences], torch.bool, 1),
        "temperature": numbers([each.temperature for each in sequences], floats, 1, 1),
        "score": numbers([each.score for each in sequences], floats),
    }
