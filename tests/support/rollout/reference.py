"""What sampling parameters mean, written out in numpy for one row; the engines are held to it."""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from mortal_steps.types import SamplingParams


def processed_logprobs(logits_V: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Logprobs sampled from: temperature, then min-p, then top-k, then top-p; -inf if filtered."""
    logits_V = np.asarray(logits_V, dtype=np.float64)
    if params.temperature == 0:
        return _log_softmax(logits_V)
    scores_V = logits_V / params.temperature
    probs_V = np.exp(_log_softmax(scores_V))
    scores_V = np.where(probs_V < params.min_p * probs_V.max(), -np.inf, scores_V)
    if 0 < params.top_k < len(scores_V):
        scores_V = np.where(scores_V < np.sort(scores_V)[-params.top_k], -np.inf, scores_V)
    if params.top_p < 1:
        order = np.argsort(-scores_V, kind="stable")
        probs_V = np.exp(_log_softmax(scores_V))[order]
        mass_before = np.concatenate([[0.0], np.cumsum(probs_V)[:-1]])
        scores_V[order[mass_before >= params.top_p]] = -np.inf
    return _log_softmax(scores_V)


def completion_logprobs(
    model: PreTrainedModel, prompt_ids: list[int], token_ids: list[int], params: SamplingParams
) -> list[float]:
    """Logprob of each token of a completion over the whole vocabulary at the temperature, whatever
    the filters leave."""
    params = SamplingParams(max_tokens=1, temperature=params.temperature)
    with torch.inference_mode():
        logits_TV = model(torch.tensor([[*prompt_ids, *token_ids]])).logits[0].double().numpy()
    rows = logits_TV[len(prompt_ids) - 1 : -1]
    return [
        float(processed_logprobs(row, params)[token])
        for row, token in zip(rows, token_ids, strict=True)
    ]


def _log_softmax(scores_V: np.ndarray) -> np.ndarray:
    shifted = scores_V - scores_V.max()
    with np.errstate(divide="ignore"):
        return shifted - np.log(np.exp(shifted).sum())
