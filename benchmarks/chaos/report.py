"""What came of the kills: tables on the terminal, and a file."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.table import Table

from benchmarks.output import console, results_table, say, write_results
from tests.support.chaos.run import Kill
from tests.support.chaos.schedule import LAST, STAGES, STARTING
from tests.support.chaos.variant import Judged

COLUMNS = (STARTING, "start_workers", "draw_order", *STAGES, LAST)
WORK = {
    "steps lost": "lost",
    "doubled": "doubled",
    "computed again": "replayed",
    "completions": "sampled",
    "sampled again": "sampled_again",
    "in flight when killed": "in_flight",
    "shards": "scored",
    "scored again": "scored_again",
    "being scored when killed": "scoring",
}
"""Columns of the second table, and what of `Work` they sum up."""


def told(name: str, run: Judged) -> list[str]:
    """Say how a run of a variant compares; return its faults, named."""
    outcome = run.outcome
    verdict = "DIFFERS: " + "; ".join(run.faults) if run.faults else "the same bits"
    say(
        f"{name}: run {outcome.run_id}, {len(outcome.kills)} kills, {outcome.seconds:.0f} s: "
        f"{verdict}"
    )
    return [f"{name}, run {outcome.run_id}: {fault}" for fault in run.faults]


def report(
    judged: Mapping[str, Sequence[Judged]], output: Path, seed: int, faults: Sequence[str]
) -> None:
    """Print and write what came of each variant's runs, and the faults of all."""
    outcomes = [run.outcome for runs in judged.values() for run in runs]
    kills = [one for outcome in outcomes for one in outcome.kills]
    console.print(_places(kills))
    work = [_work(name, runs) for name, runs in judged.items()]
    console.print(results_table("work", work, left=("variant",)))
    for outcome in outcomes:
        for error in outcome.gave_up:
            console.print(f"{outcome.run_id} ended by itself: {error}", markup=False)
    console.print(f"\n{len(kills)} kills, {len(outcomes)} runs, seed {seed}: ", end="")
    console.print("FAILED" if faults else "every run ended with the same bits")
    for fault in faults:
        console.print(f"  {fault}", markup=False)
    runs = [
        {"variant": name, "outcome": run.outcome, "work": run.work, "faults": run.faults}
        for name, runs in judged.items()
        for run in runs
    ]
    write_results(output, {"seed": seed, "faults": list(faults), "runs": runs})


def _places(kills: Sequence[Kill]) -> Table:
    """Return how often each process was killed in each stage: inside it + at its end."""
    hit = [stage for stage in COLUMNS if any(one.stage == stage for one in kills)]
    rows = []
    for victim in (*sorted({one.victim for one in kills}), None):
        mine = [one for one in kills if victim in (one.victim, None)]
        cells = {stage: _inside_and_after([o for o in mine if o.stage == stage]) for stage in hit}
        total = {"all": str(len(mine)), "recovery s (median, max)": _recovery(mine)}
        rows.append({"process": victim or "all", **cells, **total})
    return results_table("killed inside a stage + at its end", rows, left=("process",))


def _work(variant: str, runs: Sequence[Judged]) -> dict[str, str]:
    """Return a variant's kills, resumes, and the work lost, doubled and done again."""
    numbers = {
        "runs": len(runs),
        "kills": sum(len(run.outcome.kills) for run in runs),
        "resumed": sum(run.outcome.resumed for run in runs),
        **{title: sum(getattr(run.work, name) for run in runs) for title, name in WORK.items()},
    }
    return {"variant": variant, **{title: f"{number:,}" for title, number in numbers.items()}}


def _inside_and_after(kills: Sequence[Kill]) -> str:
    inside = sum(one.inside for one in kills)
    return f"{inside} + {len(kills) - inside}"


def _recovery(kills: Sequence[Kill]) -> str:
    seconds = [one.recovery_s for one in kills if one.recovery_s is not None]
    return f"{statistics.median(seconds):.1f}, {max(seconds):.1f}" if seconds else "-"
