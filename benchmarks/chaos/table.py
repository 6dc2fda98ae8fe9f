"""What came of the kills, as tables."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from rich.table import Table

from benchmarks.output import results_table
from tests.support.chaos.comparison import Work
from tests.support.chaos.run import Kill, RunOutcome
from tests.support.chaos.schedule import LAST, STAGES, STARTING

COLUMNS = (STARTING, "start_workers", "draw_order", *STAGES, LAST)


def places_table(kills: Sequence[Kill]) -> Table:
    """How often each process was killed in each stage: inside it + at its end."""
    hit = [stage for stage in COLUMNS if any(one.stage == stage for one in kills)]
    headings = ("process", *hit, "all", "recovery s (median, max)")
    table = results_table("killed inside a stage + at its end", *headings, left=("process",))
    for victim in (*sorted({one.victim for one in kills}), None):
        mine = [one for one in kills if victim in (one.victim, None)]
        cells = [_inside_and_after([o for o in mine if o.stage == stage]) for stage in hit]
        table.add_row(victim or "all", *cells, str(len(mine)), _recovery(mine))
    return table


def work_table(rows: Sequence[tuple[str, int, int, int, Work]]) -> Table:
    """Per variant: kills, resumes, errors, and the work lost, doubled and done again."""
    table = results_table(
        "work",
        *("variant", "runs", "kills", "resumed", "steps lost", "doubled", "computed again"),
        *("completions", "sampled again", "in flight when killed"),
        *("shards", "scored again", "being scored when killed"),
        left=("variant",),
    )
    for variant, runs, kills, resumed, work in rows:
        numbers = (runs, kills, resumed, work.lost, work.doubled, work.replayed)
        sampled = (work.sampled, work.sampled_again, work.in_flight)
        scored = (work.scored, work.scored_again, work.scoring)
        table.add_row(variant, *(f"{number:,}" for number in (*numbers, *sampled, *scored)))
    return table


def added(works: Sequence[Work]) -> Work:
    """Return the work of several runs."""
    return Work(
        lost=sum(work.lost for work in works),
        doubled=sum(work.doubled for work in works),
        replayed=sum(work.replayed for work in works),
        sampled=sum(work.sampled for work in works),
        sampled_again=sum(work.sampled_again for work in works),
        in_flight=sum(work.in_flight for work in works),
        scored=sum(work.scored for work in works),
        scored_again=sum(work.scored_again for work in works),
        scoring=sum(work.scoring for work in works),
        needlessly=tuple(name for work in works for name in work.needlessly),
    )


def kills_of(outcomes: Sequence[RunOutcome]) -> list[Kill]:
    """Every kill of some runs."""
    return [one for outcome in outcomes for one in outcome.kills]


def _inside_and_after(kills: Sequence[Kill]) -> str:
    inside = sum(one.inside for one in kills)
    return f"{inside} + {len(kills) - inside}"


def _recovery(kills: Sequence[Kill]) -> str:
    seconds = [one.recovery_s for one in kills if one.recovery_s is not None]
    return f"{statistics.median(seconds):.1f}, {max(seconds):.1f}" if seconds else "-"
