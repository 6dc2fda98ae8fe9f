"""Checks whose run directory somebody asks to continue, because its settings start programs."""

import os
import socket
from collections.abc import Iterator

from mortal_steps.config.rewards import RewardTerm
from mortal_steps.errors import StoreError
from mortal_steps.places.table import PLACES
from mortal_steps.runs.run import Run
from mortal_steps.store.identity import IDENTITY_FILE


def check_trusted(run: Run) -> None:
    """Raise `StoreError` for another user's or machine's run directory that names programs or their
    environment. It does not prove who wrote it; rewards and models are code, too (SECURITY.md)."""
    origin, named = _origin(run), list(_programs(run))
    if origin is not None and named:
        raise StoreError(
            f"run {run.info.run_id} in {run.store.root} {origin}, and its config.toml decides what "
            f"is started here: {', '.join(named)}. Read it; `--trust` continues the run"
        )


def _origin(run: Run) -> str | None:
    owner = run.store.path(IDENTITY_FILE).stat().st_uid
    if owner != os.getuid():
        return f"belongs to another user (id {owner})"
    if run.info.host not in (None, socket.gethostname()):
        return f"began on another machine ({run.info.host})"
    return None


def _programs(run: Run) -> Iterator[str]:
    backend = run.config.compute.backend
    if not PLACES.get(backend):  # a user's own, which starts the workers
        yield f"compute.backend = {backend!r}"
    for name, role in run.config.compute.local:
        if role.python is not None:
            yield f"compute.local.{name}.python = {role.python!r}"
        if role.env:
            yield f"compute.local.{name}.env with {', '.join(sorted(role.env))}"
    for table, term in _terms(run):
        if term.sends is not None:
            yield f"{table} with {term.sends}"
        yield from (f"{table} with the pickle {file}, which is code" for file in term.files)
    for file in run.config.environment.files:
        yield f"environment with the pickle {file}, which is code"
    for name, harness in run.config.evaluation.harnesses.items():
        for code in (*harness.code, *map(str, harness.read_files)):
            yield f"evaluation.sets.{name} with the harness {code}, which is code"


def _terms(run: Run) -> Iterator[tuple[str, RewardTerm]]:
    """Yield all that scores with its table, of training, evaluations and their sets."""
    config = run.config
    yield from (("rewards.terms", term) for term in config.rewards.all_terms)
    if config.evaluation.functions is not None:
        yield from (("evaluation.functions", term) for term in config.eval_rewards.all_terms)
    for name, rewards in config.set_rewards.items():
        yield from ((f"evaluation.sets.{name}.terms", term) for term in rewards.all_terms)
