"""Checks whose run directory somebody asks to continue, because its settings start programs."""

import os
import socket
from collections.abc import Iterator

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
    for term in run.config.rewards.all_terms:
        if term.sends is not None:
            yield f"rewards.terms with {term.sends}"
        yield from (f"rewards.terms with the pickle {file}, which is code" for file in term.files)
