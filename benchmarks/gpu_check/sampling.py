"""Each engine with each way of syncing weights, against fresh engines and against each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Found, Options, check_one
from mortal_steps.rollout.weight_sync.table import WEIGHT_SYNC

ENGINES_AGREE_NATS = 1e-3
"""Largest difference of log-probabilities in float32 that counts as rounding."""


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """For each engine: a check of each way of syncing; then one of the engines' agreement."""
    answers: dict[str, dict[str, Any]] = {}
    for engine, python in options.engines.items():

        def look(engine: str = engine, python: str = python) -> Found:
            answers[engine] = options.ask("syncing:synced", folder, python=python, engine=engine)
            return Found()

        asked = check_one("syncing", engine, look)
        yield from _syncs(engine, answers[engine]) if asked.passed else [asked]
    if len(answers) > 1:
        yield _agreement(*answers.values())


def _syncs(engine: str, answer: Mapping[str, Any]) -> Iterator[Checked]:
    for method in WEIGHT_SYNC:
        synced = answer["synced"][method]
        if method in answer["slept"]:
            yield _slept(engine, method, answer["slept"][method], synced, answer["is_gpu"])
        off = max(
            _largest_difference(now, fresh)
            for now, fresh in zip(synced["scores"], answer["fresh"]["scores"], strict=True)
        )
        same_tokens = synced["greedy"] == answer["fresh"]["greedy"]
        yield Checked(
            part="syncing",
            name=f"{engine}, {method}: as a fresh engine",
            passed=same_tokens and off <= ENGINES_AGREE_NATS,
            took_s=synced["took_s"],
            measured=f"greedy tokens {'equal' if same_tokens else 'DIFFER'}, log-probabilities "
            f"{'equal' if off == 0 else f'off by {off:.1e} nats'}",
        )


def _slept(
    engine: str, method: str, slept: Mapping[str, Any], synced: Mapping[str, Any], is_gpu: bool
) -> Checked:
    """After a sleep the worker samples as one that never slept; on a GPU it gives memory back."""
    same = all(slept[key] == synced[key] for key in ("scores", "greedy"))
    freed = min(slept["freed"])
    memory = f"{freed / 1e9:.2f} GB given back" if is_gpu else "a CPU has no memory to give back"
    return Checked(
        part="syncing",
        name=f"{engine}, {method}: after a sleep as before",
        passed=same and (freed > 0 or not is_gpu),
        took_s=slept["took_s"],
        measured=f"tokens and log-probabilities {'equal' if same else 'DIFFER'}, {memory}",
    )


def _agreement(one: Mapping[str, Any], other: Mapping[str, Any]) -> Checked:
    pairs = zip(one["fresh"]["scores"], other["fresh"]["scores"], strict=True)
    off = max(_largest_difference(a, b) for a, b in pairs)
    return Checked(
        part="syncing",
        name="the two engines against each other",
        passed=off <= ENGINES_AGREE_NATS,
        took_s=0.0,
        measured=f"log-probabilities off by {off:.1e} nats in float32",
    )


def _largest_difference(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
