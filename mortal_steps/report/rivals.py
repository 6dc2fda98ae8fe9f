"""Finds the best other run with the same name that was evaluated on the same held-out problems."""

from __future__ import annotations

import logging
import tomllib
from dataclasses import dataclass
from pathlib import Path

from mortal_steps.errors import MortalError
from mortal_steps.runs.logs import EVALUATIONS, read_lines
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.store.identity import CONFIG_FILE, IDENTITY_FILE, read_identity

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rival:
    """Another run's best evaluation."""

    run_id: str
    step: int
    scores: dict[str, float]
    """`reward`, and each function's."""


def best_rival(run: Run) -> Rival | None:
    """The best other run in the same folder; None where no other one has been evaluated.

    Runs that cannot be read are left out; `mortal runs` warns of them.
    """
    own, found = _name(run.store.root), []
    for path in sorted(run.store.root.parent.glob(f"[!.]*/{IDENTITY_FILE}")):
        if path.parent != run.store.root:
            try:
                found.extend(_rival(run, path.parent, own))
            except (MortalError, OSError, ValueError) as error:
                logger.debug("%s is not compared with: %s", path.parent, error)
    return max(found, key=lambda rival: rival.scores["reward"], default=None)


def _rival(run: Run, root: Path, name: str) -> list[Rival]:
    """The run's best evaluation, if it was evaluated as `run` is."""
    lines = read_lines(root / EVALUATIONS, needs=("step",))
    rows = [row for row in lines if "reward" in row]  # else nothing was scored
    if not rows or _name(root) != name:
        return []
    info = read_identity(RunStore(root))
    if info is None or info.eval_problems.sha256 != run.info.eval_problems.sha256:
        return []
    best = max(rows, key=lambda row: row["reward"])
    scores = {key: value for key, value in best.items() if key != "step"}
    return [Rival(run_id=info.run_id, step=best["step"], scores=scores)]


def _name(root: Path) -> str:
    """`name` of a run's configuration."""
    path = root / CONFIG_FILE
    values = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return str(values.get("name", ""))
