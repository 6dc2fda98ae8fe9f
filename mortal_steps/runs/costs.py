"""What a run has cost, added up from costs.jsonl; see `mortal_steps.compute.modal.meter`."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.runs.logs import read_lines

COSTS = "costs.jsonl"
KINDS = ("useful", "start_up", "idle", "repeated")


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Dollars, estimated."""

    total: float
    by_kind: dict[str, float]
    """useful, start_up, idle, repeated."""
    by_stage: dict[str, float]


def read_costs(path: Path) -> list[dict[str, Any]]:
    """Rows of costs.jsonl; none where there is no such file."""
    return read_lines(path, needs=("step", "stage", "kind", "dollars"))


def merge_costs(one: bytes, other: bytes) -> bytes:
    """Two costs.jsonl of a run in one: lines in both are about the same seconds of a container, and
    count once. A last line that a kill has cut short is left out."""
    whole = [content[: content.rfind(b"\n") + 1].splitlines(True) for content in (one, other)]
    return b"".join(dict.fromkeys([*whole[0], *whole[1]]))


def add_up(path: Path) -> Costs | None:
    """The costs of a run; None for one that cost nothing."""
    rows = read_costs(path)
    if not rows:
        return None
    by_kind: dict[str, float] = dict.fromkeys(KINDS, 0.0)
    by_stage: dict[str, float] = defaultdict(float)
    for row in rows:
        by_kind[row["kind"]] += row["dollars"]
        by_stage[row["stage"]] += row["dollars"]
    total = sum(row["dollars"] for row in rows)
    return Costs(total=total, by_kind=by_kind, by_stage=dict(by_stage))
