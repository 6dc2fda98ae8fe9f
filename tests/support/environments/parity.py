"""A case with stock TRL and with MORTAL: what differs between the two, in words."""

from __future__ import annotations

import json
import math
from pathlib import Path

import torch
from transformers import AutoTokenizer

from mortal_steps.rollout.engines.table import ENGINES
from tests.support.environments.cases import Case, build
from tests.support.environments.mortal import run_mortal
from tests.support.environments.stock import Outcome, run_stock


def both(case: Case, folder: Path) -> tuple[Outcome, Outcome]:
    """Train with stock TRL, and with MORTAL."""
    run = build(case, folder / "model")
    engine = ENGINES.load(run.config.rollout.engine)(
        model_path=run.model_path,
        model=run.config.sampled_model,
        rollout=run.config.rollout,
        tokenizer=lambda: AutoTokenizer.from_pretrained(run.model_path),
    )
    return run_stock(run, engine, folder / "stock"), run_mortal(run, folder / "run")


def differences(stock: Outcome, ours: Outcome) -> list[str]:
    """Return each thing that is not the same to the bit."""
    found = [
        f"step {number}: {name}, row {row}: {a!r} != {b!r}"
        for number, (theirs, own) in enumerate(zip(stock.steps, ours.steps, strict=True))
        for name in ("prompts", "prompt_ids", "completion_ids", "masks", "messages")
        for row, (a, b) in enumerate(zip(getattr(theirs, name), getattr(own, name), strict=True))
        if _plain(a) != _plain(b)
    ]
    for number, (theirs, own) in enumerate(zip(stock.steps, ours.steps, strict=True)):
        if _columns(theirs.rewards) != _columns(own.rewards):
            found.append(f"step {number}: rewards: {theirs.rewards} != {own.rewards}")
    if len(stock.weights) != len(ours.weights):
        found.append(f"updates: {len(stock.weights)} != {len(ours.weights)}")
    for number, (theirs, own) in enumerate(zip(stock.weights, ours.weights, strict=False)):
        other = [name for name in theirs if not torch.equal(theirs[name], own[name])]
        found += [f"update {number}: weights: {', '.join(other)}"] if other else []
    for number, (theirs, own) in enumerate(zip(stock.metrics, ours.metrics, strict=True)):
        found += [
            f"step {number}: metric {name}: {theirs.get(name)} != {own.get(name)}"
            for name in {**theirs, **own}
            if theirs.get(name) != own.get(name)
        ]
    return found


def _plain(value):
    return json.loads(json.dumps(value, default=dict))


def _columns(rewards):
    """Scores as TRL keeps them: in float32, nan for none."""
    return {
        name: [
            None if score is None or math.isnan(score) else torch.tensor(score).item()
            for score in scores
        ]
        for name, scores in rewards.items()
    }
