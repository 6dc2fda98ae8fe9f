"""What a run has cost: its containers, from costs.jsonl (`mortal_steps.places.modal.meter`), and
its judges (`mortal_steps.rewards.judge.ledger`)."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.rewards.judge.ledger import Spending
from mortal_steps.runs.logs import read_lines

COSTS = "costs.jsonl"
KINDS = ("useful", "start_up", "idle", "repeated")


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Dollars, estimated."""

    total: float
    by_kind: dict[str, float]
    """useful, start_up, idle, repeated, of containers; judge."""
    by_stage: dict[str, float]


def read_costs(path: Path) -> list[dict[str, Any]]:
    """Read the rows of costs.jsonl; empty if there is no such file."""
    return read_lines(path, needs=("step", "stage", "kind", "dollars"))


def merge_costs(one: bytes, other: bytes) -> bytes:
    """Merge two copies' costs.jsonl: equal lines are the same seconds of a container, and count
    once. A last line that a kill cut short is left out."""
    whole = [content[: content.rfind(b"\n") + 1].splitlines(True) for content in (one, other)]
    return b"".join(dict.fromkeys([*whole[0], *whole[1]]))


def add_up(run_dir: Path) -> Costs | None:
    """Return the costs of a run; None if it cost nothing."""
    rows, judged = read_costs(run_dir / COSTS), Spending(run_dir).so_far()
    if not rows and not judged.dollars:
        return None
    by_kind: dict[str, float] = dict.fromkeys(KINDS if rows else (), 0.0)
    by_stage: dict[str, float] = defaultdict(float)
    for row in rows:
        by_kind[row["kind"]] += row["dollars"]
        by_stage[row["stage"]] += row["dollars"]
    if judged.dollars:
        by_kind["judge"] = judged.dollars
        by_stage["reward"] += judged.dollars
    total = judged.dollars + sum(row["dollars"] for row in rows)
    return Costs(total=total, by_kind=by_kind, by_stage=dict(by_stage))
