"""One engine that samples a shard twice: a digest of tokens and log-probabilities, the speed."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.rollout.engines.base import Engine, SampledTokens
from mortal_steps.rollout.engines.table import ENGINES
from mortal_steps.types import SamplingParams

PROMPT = 150
"""Tokens of each prompt; four rows have the same."""


def sampled_twice(job: dict[str, Any]) -> dict[str, Any]:
    """Digests of the shard's two samplings, which are to be equal, and what they took."""
    rows, tokens = job["rows"], job["tokens"]
    build = ENGINES.load(job["engine"])
    began = time.perf_counter()
    engine: Engine = build(  # before torch is imported
        model_path=job["model"],
        model=ModelConfig(max_model_len=PROMPT + tokens, dtype=job["dtype"]),
        rollout=RolloutConfig(
            engine=job["engine"], weight_sync="volume", engine_options=job["options"]
        ),
        tokenizer=lambda: _tokenizer(job["model"]),
    )
    if job.get("adapter"):
        engine.load(Path(job["adapter"]))
    start_s = time.perf_counter() - began
    prompts = [[3 + (row // 4 + at) % 60 for at in range(PROMPT)] for row in range(rows)]
    digests, took = [], []
    for _ in range(2):
        began = time.perf_counter()
        sampled = engine.sample(prompts, range(rows), SamplingParams(max_tokens=tokens))
        took.append(time.perf_counter() - began)
        digests.append(_digest(sampled))
    num_tokens = sum(len(one.token_ids) for one in sampled)
    texts = [
        [*prompt[-20:], *one.token_ids[:43]] for prompt, one in zip(prompts, sampled, strict=True)
    ]
    texts = texts[: job["probes"]]
    scores = [engine.score(text) for text in texts]
    used = _used_bytes()
    engine.close()
    return {
        "digests": digests,
        "start_s": start_s,
        "tokens_per_s": num_tokens / min(took),
        "num_tokens": num_tokens,
        "used_bytes": used,
        "differences": _differences(job["model"], texts, scores) if texts else [],
    }


def _digest(sampled: Sequence[SampledTokens]) -> str:
    hasher = hashlib.sha256()
    for one in sampled:
        exact = [list(map(int, one.token_ids)), [float(x).hex() for x in one.logprobs]]
        hasher.update(json.dumps(exact).encode())
    return hasher.hexdigest()


def _differences(
    model: str, texts: Sequence[Sequence[int]], scores: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Of each text's tokens, in nats: the engine against float32, as the canary compares them."""
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    exact = AutoModelForCausalLM.from_pretrained(model, dtype="float32").to(device).eval()
    found = []
    for text, score in zip(texts, scores, strict=True):
        ids = torch.tensor([list(text)], device=device)
        with torch.no_grad():
            logprobs = exact(input_ids=ids).logits[0, :-1].log_softmax(-1)
        right = logprobs.gather(1, ids[0, 1:, None]).squeeze(1).tolist()
        found.append([abs(a - b) for a, b in zip(score, right, strict=True)])
    return found


def _used_bytes() -> int:
    """Of the GPU's memory, by whoever."""
    import torch

    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def _tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)
