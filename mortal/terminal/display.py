"""How runs look on a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from rich.text import Text

from mortal.terminal.console import PlainConsole, console, print_columns
from mortal.terminal.output import shortened
from mortal.terminal.wrapping import at_words
from mortal_steps.report.curve_points import Point, downsample
from mortal_steps.report.evaluations import scores_text
from mortal_steps.report.held_out import gain_text
from mortal_steps.report.printable import printable
from mortal_steps.report.quarantine import quarantine_in_words
from mortal_steps.report.reward_functions import function_cells
from mortal_steps.report.summary import (
    RunSummary,
)
from mortal_steps.report.timings import table_cells
from mortal_steps.report.trackers import FOLDER
from mortal_steps.report.units import byte_size, counted, duration, money, number
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.checked import Checked
from mortal_steps.runs.recipe_of import resume_argument
from mortal_steps.runs.verify import RunCheck

WIDTH = 60
BESIDE = 16
"""Columns of a terminal beside the curve."""
HEIGHT = 8
FEWEST = 4
"""Steps that a curve needs at least."""
MOST_WARNINGS = 5
TRAINING, HELD_OUT, FORK = "·", "o", "┊"


def chart(
    training: Sequence[Point],
    held_out: Sequence[Point],
    *,
    fork: int | None = None,
    drawn: Mapping[str, str] = MappingProxyType({}),
    columns: int = WIDTH + BESIDE,
    judged: str = "problems",
) -> list[str]:
    """Return lines of at most 76 columns, or as many as there are `columns`; none for too few
    steps. Each `·` is the mean training reward of some steps, each `o` an evaluation on what is
    `judged`. `drawn` says how the completions of either are chosen."""
    if len(training) < FEWEST:
        return []
    width = max(FEWEST, min(WIDTH, columns - BESIDE))
    points = downsample(training, width)
    values = [value for _, value in [*points, *held_out]]
    low, high = min(values), max(values)
    last = max(step for step, _ in [*points, *held_out])
    rows = [[" "] * width for _ in range(HEIGHT)]

    def column(step: int) -> int:
        return min(width - 1, max(0, step - 1) * width // max(1, last))

    def row(value: float) -> int:
        return round((HEIGHT - 1) * (high - value) / (high - low)) if high > low else HEIGHT - 1

    if fork is not None:
        for marks in rows:
            marks[column(fork)] = FORK
    for mark, shown in ((TRAINING, points), (HELD_OUT, held_out)):
        for step, value in shown:
            rows[row(value)][column(step)] = mark
    lines = []
    for index, marks in enumerate(rows):
        value = high - (high - low) * index / (HEIGHT - 1)
        label = number(value) if index in (0, HEIGHT - 1) else ""
        lines.append(f"{label:>9} │{''.join(marks).rstrip()}")
    lines.append(f"{'step':>9} └{'1':<{width - len(str(last))}}{last}")
    legend = [f"{TRAINING} training{_how(drawn, 'training')}"]
    if held_out:
        legend.append(f"{HELD_OUT} held-out {judged}{_how(drawn, 'held_out')}")
    if fork is not None:
        legend.append(f"{FORK} fork")
    lines.append(f"{'':>9}  {'  '.join(legend)}")
    return lines


def _how(drawn: Mapping[str, str], which: str) -> str:
    return f" ({drawn[which]})" if which in drawn else ""


DEFAULT_UI = "http://127.0.0.1:4200"
"""Where `mortal server` shows the Prefect UI."""

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def show_run(run: RunSummary, named: str | None = None) -> None:
    """Print a run, which commands know by what it is `named`; by default, one on this machine."""
    title = f"  {run.status}, step {run.step} of {run.max_steps}"
    console.print(Text.assemble((printable(run.run_id), "bold"), title))
    if run.parent:
        line("fork of", f"{run.parent['run_id']}, from step {run.parent['step']}")
    if run.error:
        name = "error" if run.status == "failed" else "reason"
        line(
            name,
            shortened(
                run.error, f"`mortal show {named or run_argument(Path(run.run_dir))} --json`"
            ),
        )
    if run.nothing_learned:
        line("WARNING", run.nothing_learned)
    for text in run.warnings[-MOST_WARNINGS:]:
        line("warning", text)
    line("began", _times(run))
    if run.step:
        line(run.merit, _merits(run))
    for changed in run.changed_rewards:
        line("rewards", f"changed after step {changed['step']}: {', '.join(changed['changes'])}")
    if run.quarantined:
        line("masked", quarantine_in_words(run.quarantined))
    if run.eval:
        scores = scores_text(run.eval, run.eval_intervals)
        line("held-out", f"{scores}  (after step {run.eval_step})")
    if run.first_eval:
        line("before", f"{scores_text(run.first_eval)}  (after step {run.first_eval_step})")
    if run.eval_gain:
        line("gain", gain_text(run.eval_gain))
    _show_curve(run)
    _show_model(run)
    _show_costs(run)
    _show_files(run)
    if run.functions:
        _show_table("reward functions, over the last steps", function_cells(run.functions))
    _show_timings(run)


def _show_curve(run: RunSummary) -> None:
    fork = int(run.parent["step"]) if run.parent else None
    held_out = run.curve["held_out"] if run.judged_alike else []
    judged = "problems" if run.merit == "reward" else "rows"
    lines = chart(
        run.curve["training"],
        held_out,
        fork=fork,
        drawn=run.drawn,
        columns=console.width,
        judged=judged,
    )
    for text in lines:
        console.print(text)


def _show_model(run: RunSummary) -> None:
    if run.checkpoints:
        best = f", best {run.best_step}" if run.best_step is not None else ""
        line("checkpoints", f"{', '.join(map(str, run.checkpoints))}{best}")
    if run.base_model:
        line("base model", "built from [model.new]" if run.builds_model else run.base_model)
    if run.model_path:
        unchanged = "  (equal to the starting model)" if run.is_unchanged else ""
        line("final model", f"{run.model_path}{unchanged}")
        line("sha256", str(run.final_weights_sha256))


def _show_costs(run: RunSummary) -> None:
    if run.cost:
        kinds = [f"{kind} {money(dollars)}" for kind, dollars in run.cost["by_kind"].items()]
        line("cost", f"${money(run.cost['total'])}, estimated: {', '.join(kinds)}")
    if run.judge:
        line(
            "judge",
            f"{run.judge['answers']:,} answers: {run.judge['prompt_tokens']:,} tokens in, "
            f"{run.judge['completion_tokens']:,} out, ${money(run.judge['dollars'])}",
        )


def _show_files(run: RunSummary) -> None:
    line("files", run.run_dir)
    if run.trackers:
        folder = Path(run.run_dir) / FOLDER
        line("tracking", ", ".join(run.trackers) + (f" in {folder}" if folder.is_dir() else ""))
    if run.report:
        line("report", f"{run.run_dir}/{run.report}")
    if run.ui_url:
        line("Prefect UI", _page(run))


def show_outcome(run: RunSummary, seconds: float) -> None:
    """Print what a command that drove a run says at its end."""
    console.print()
    show_run(run)
    console.print(f"  this command took {seconds:.0f} s")
    if run.status != "completed":
        go_on = f"   mortal resume {resume_argument(Path(run.run_dir))}   (from step {run.step})"
        console.print(Text.assemble(("continue with", "bold"), printable(go_on)))


def _show_timings(run: RunSummary) -> None:
    if not run.timings:
        return
    rows = list(run.timings.values())
    cells = table_cells(rows)
    if run.cost:
        for row, cell in zip(rows, cells, strict=True):
            price = run.cost["by_stage"].get(row.stage, 0.0)
            cell["cost"] = f"${money(price)}" if price and not row.is_part else ""
    _show_table("where the time went", cells)


def _show_table(title: str, cells: Sequence[Mapping[str, str]]) -> None:
    rows = [list(cells[0]), *(list(cell.values()) for cell in cells)]
    print_columns(rows, title=title, numbers=True)


def _times(run: RunSummary) -> str:
    """Return when the run began, and how long ago it changed or completed."""
    now = time.time()
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(run.created_at))
    began = f"{at}, {duration(now - run.created_at)} ago"
    if run.status == "completed":
        return f"{began}; completed {duration(run.updated_at - run.created_at)} later"
    return f"{began}; last change {duration(now - run.updated_at)} ago"


def _merits(run: RunSummary) -> str:
    """Of training; the two ends of a run that is too short for both are not told apart."""
    trend = run.reward_trend or run.loss_trend
    if trend is None:
        merit = run.reward if run.loss is None else run.loss
        return f"{number(merit)}  (training, {counted(run.step, 'step')})"
    means = f"{number(trend['first'])} -> {number(trend['last'])}"
    return f"{means}  (training, first {counted(trend['steps'], 'step')} -> last {trend['steps']})"


def line(name: str, text: str) -> None:
    """Print one fact of a run, below its name; on a terminal, long ones are broken at words."""
    if console.is_terminal:
        text = at_words(text, console.width, indent=15)
    console.print(f"  {name:<12} {text}")


def _page(run: RunSummary) -> str:
    """Return where the page of the run's last flow run opens. MORTAL's own server ends with the
    commands that use it, and then has another port."""
    address = urlsplit(run.ui_url or "")
    if run.status == "running" or address.hostname not in LOOPBACK:
        return str(run.ui_url)
    return f"start it with `mortal server`, then open {DEFAULT_UI}{address.path}"


class CheckProgress:
    """Shows how a check of a run goes on: how much was read, and each damaged file at once."""

    def __init__(self, *, quiet: bool) -> None:
        """`quiet`: damaged files are listed at the end alone, as JSON."""
        self._quiet = quiet
        self._num_files = self._num_bytes = 0
        self._status = PlainConsole(stderr=True).status("checking")

    def __enter__(self) -> CheckProgress:
        self._status.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._status.stop()

    def note(self, file: Checked) -> None:
        self._num_files, self._num_bytes = self._num_files + 1, self._num_bytes + file.num_bytes
        found = f"{counted(self._num_files, 'file')}, {byte_size(self._num_bytes)}"
        self._status.update(f"checking: {found}")
        if file.damage is not None and not self._quiet:
            console.print(f"{file.path} {file.damage}: {file.outcome}")


def show_check(check: RunCheck, *, as_json: bool, stages: int | None = None) -> bool:
    """Print the result of a check, of so many `stages` of a recipe or of a run; returns whether
    nothing is damaged."""
    damaged = [file for file in check.files if file.damage is not None]
    num_files, num_bytes = len(check.files), sum(file.num_bytes for file in check.files)
    if as_json:
        console.print_json(
            data={
                "files": num_files,
                "bytes": num_bytes,
                "steps": check.num_steps,
                "linked": check.num_linked,
                "damaged": [
                    {"path": str(f.path), "damage": f.damage, "outcome": f.outcome} for f in damaged
                ],
            }
        )
    elif damaged and check.is_driven:
        console.print("The run is being driven: what it replaces meanwhile can look damaged.")
    elif not damaged:
        chain = f"the chain of {counted(check.num_linked, 'step')} is whole"
        if stages is not None:
            chain = (
                f"the chain of {counted(stages, 'stage')} is whole (`mortal verify RUN` checks the "
                "steps of a run)"
            )
        console.print(
            f"{counted(num_files, 'file')}, {byte_size(num_bytes)}, all as they were committed; "
            f"{chain}"
        )
    return not damaged
