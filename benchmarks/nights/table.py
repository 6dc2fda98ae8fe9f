"""What came of the nights, as Markdown."""

import statistics
from collections.abc import Sequence

from benchmarks.nights.night import Struck
from benchmarks.nights.plan import FAULTS
from benchmarks.nights.verdict import Verdict
from mortal_steps.report.markdown import table

TOLD = {"good": "", "collapse": "reward collapses", "regression": "evaluation falls"}


def nights_table(verdicts: Sequence[Verdict]) -> str:
    """Return a line for each night."""
    headings = [
        *("night", "planted", "faults", "starts", "minutes", "steps lost, doubled"),
        *("same bits", "held out", "notice after", "the gate", "history", "database MB"),
    ]
    rows = [
        (
            str(verdict.night.plan.number),
            TOLD[verdict.night.plan.kind],
            str(len(verdict.night.struck)),
            str(verdict.night.starts),
            f"{verdict.night.seconds / 60:.1f}",
            f"{verdict.lost}, {verdict.doubled}",
            "no" if verdict.differs else "yes",
            f"{verdict.held_out[0]:.2f} → {verdict.held_out[1]:.2f}",
            f"{verdict.notice_s:.1f} s" if verdict.notice_s is not None else "",
            verdict.promotion.split(" ")[0],
            "; ".join(verdict.holes) if verdict.holes else f"whole ({verdict.task_runs})",
            f"{verdict.night.database_mb:.1f}",
        )
        for verdict in verdicts
    ]
    return table(headings, rows, "llrrrrllrllr")


def faults_table(verdicts: Sequence[Verdict]) -> str:
    """Return a line for each kind of fault."""
    struck = [each for verdict in verdicts for each in verdict.night.struck]
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
