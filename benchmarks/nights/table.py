"""What came of the nights, as Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from benchmarks.nights.morning import Morning
from benchmarks.nights.night import Struck
from benchmarks.nights.plan import FAULTS
from mortal_steps.report.markdown import table

TOLD = {"good": "", "collapse": "reward collapses", "regression": "evaluation falls"}


def nights_table(mornings: Sequence[Morning]) -> str:
    """Return a line for each night."""
    headings = [
        *("night", "planted", "faults", "starts", "minutes", "steps lost, doubled"),
        *("same bits", "held out", "notice after", "the gate", "history", "database MB"),
    ]
    rows = [
        (
            str(morning.night.plan.number),
            TOLD[morning.night.plan.kind],
            str(len(morning.night.struck)),
            str(morning.night.starts),
            f"{morning.night.seconds / 60:.1f}",
            f"{morning.lost}, {morning.doubled}",
            "no" if morning.differs else "yes",
            f"{morning.held_out[0]:.2f} → {morning.held_out[1]:.2f}",
            f"{morning.notice_s:.1f} s" if morning.notice_s is not None else "",
            morning.promotion.split(" ")[0],
            "; ".join(morning.holes) if morning.holes else f"whole ({morning.task_runs})",
            f"{morning.night.database_mb:.1f}",
        )
        for morning in mornings
    ]
    return table(headings, rows, "llrrrrllrllr")


def faults_table(mornings: Sequence[Morning]) -> str:
    """Return a line for each kind of fault."""
    struck = [each for morning in mornings for each in morning.night.struck]
    rows = [
        (kind, str(len(mine)), _seconds([each.lasted_s for each in mine]), _recovery(mine))
        for kind in FAULTS
        if (mine := [each for each in struck if each.fault == kind])
    ]
    headings = ["fault", "times", "lasted s", "until the next step s (median, max)"]
    return table(headings, rows, "lrrr")


def _seconds(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}"


def _recovery(struck: Sequence[Struck]) -> str:
    seconds = [each.recovery_s for each in struck if each.recovery_s is not None]
    return f"{statistics.median(seconds):.1f}, {max(seconds):.1f}" if seconds else "-"
