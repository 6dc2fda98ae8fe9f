"""The weights that every run of a comparison starts from."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from mortal_steps.plan.loader import load_config


def starting_model(path: Path, overrides: list[str]) -> str:
    """Folder of the model that a configuration starts from; made in a process of its own."""
    with ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn")) as process:
        return process.submit(_make, path, overrides).result()


def _make(path: Path, overrides: list[str]) -> str:
    from mortal_steps.data.problems import load_problems  # the measuring process stays small
    from mortal_steps.plan.parts import Plan
    from mortal_steps.policy.starting_model.base_model import make_base_model

    config = load_config(path, overrides)
    problems, _ = load_problems(config.data, config.seed)
    return make_base_model(Plan(config).actor, problems)
