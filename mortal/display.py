"""How runs look on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mortal_steps.report.summary import RunSummary
from mortal_steps.report.timings import StageRow, table_cells
from mortal_steps.runs.verify import Checked, FinishedCheck, RunCheck

DEFAULT_UI = "http://127.0.0.1:4200"
"""Where `mortal server` shows the Prefect UI."""

MOST_QUARANTINED = 20

console = Console(highlight=False, soft_wrap=True)


def runs_table(summaries: Sequence[RunSummary]) -> None:
    """One line per run."""
    table = Table("run", "status", "step", "reward first 20", "reward last 20", "evaluation")
    for run in summaries:
        table.add_row(
            run.run_id,
            run.status,
            f"{run.step}/{run.max_steps}",
            _number(run.reward_first20),
            _number(run.reward_last20),
            _scores(run),
        )
    console.print(table)


def show_run(run: RunSummary) -> None:
    """Everything about one run."""
    console.print(f"[bold]{run.run_id}[/bold]  {run.status}, step {run.step} of {run.max_steps}")
    if run.parent:
        console.print(f"  fork of      {run.parent['run_id']}, from step {run.parent['step']}")
    if run.error:
        console.print(f"  error        {run.error}", markup=False)
    rewards = f"{_number(run.reward_first20)} -> {_number(run.reward_last20)}"
    console.print(f"  reward       {rewards}  (first 20 steps -> last 20)")
    for changed in run.changed_rewards:
        what = ", ".join(changed["changes"])
        console.print(f"  rewards      changed after step {changed['step']}: {what}", markup=False)
    if run.eval:
        console.print(f"  evaluation   {_scores(run)}  (after step {run.eval_step})")
    if run.checkpoints:
        best = f", best {run.best_step}" if run.best_step is not None else ""
        console.print(f"  checkpoints  {', '.join(map(str, run.checkpoints))}{best}")
    if run.model_path:
        console.print(f"  model        {run.model_path}")
        console.print(f"  sha256       {run.final_weights_sha256}")
    if run.cost:
        kinds = [f"{kind} {dollars:.2f}" for kind, dollars in run.cost["by_kind"].items()]
        console.print(f"  cost         ${run.cost['total']:.2f}, estimated: {', '.join(kinds)}")
    console.print(f"  files        {run.run_dir}")
    _show_quarantined(run)
    _show_timings(run)


def show_outcome(run: RunSummary, seconds: float, *, server_runs: bool) -> None:
    """What a command that drove a run says at its end; `server_runs`: its Prefect server still
    does."""
    console.print()
    show_run(run)
    console.print(f"  this command took {seconds:.0f} s")
    if run.ui_url and server_runs:
        console.print(f"  Prefect UI   {run.ui_url}")
    elif run.ui_url:
        place = f"{DEFAULT_UI}{urlsplit(run.ui_url).path}"
        console.print(f"  Prefect UI   start it with `mortal server`, then open {place}")
    if run.status != "completed":
        folder = Path(run.run_dir).parent
        console.print(
            f"[bold]go on with[/bold]   mortal resume {run.run_id} --runs-dir {folder}"
            f"   (from step {run.step})"
        )


def show_check(check: RunCheck | FinishedCheck, *, as_json: bool) -> bool:
    """Check a run, one line for each problem; returns whether there is none."""
    damaged: list[Checked] = []
    num_files = num_bytes = 0
    with Console(stderr=True).status("checking") as status:
        for file in check.files():
            num_files, num_bytes = num_files + 1, num_bytes + file.num_bytes
            status.update(f"checking: {num_files} files, {num_bytes / 1e9:.2f} GB")
            if file.damage is not None:
                damaged.append(file)
                if not as_json:
                    console.print(f"{file.path} {file.damage}: {file.outcome}", markup=False)
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
    elif damaged and check.is_driven():
        console.print("The run is being driven: what it replaces meanwhile can look damaged.")
    elif not damaged:
        console.print(
            f"{num_files} files, {num_bytes / 1e9:.2f} GB, all as they were committed; "
            f"the chain of {check.num_linked} steps is whole"
        )
    return not damaged


def _show_quarantined(run: RunSummary) -> None:
    """The problems that rewards failed on most often; there may be as many as problems."""
    if not run.quarantined:
        return
    num_problems = len({one.problem_id for one in run.quarantined})
    title = f"quarantined: {num_problems} problems that a reward function failed on"
    table = Table("problem", "function", "kind", "times", "last failure", title=title)
    table.title_justify = "left"
    for one in run.quarantined[:MOST_QUARANTINED]:
        table.add_row(
            *map(escape, (one.problem_id, one.function, one.kind)),
            str(one.times),
            escape(one.message),
        )
    console.print(table)
    if len(run.quarantined) > MOST_QUARANTINED:
        console.print(
            f"  the {MOST_QUARANTINED} most frequent; all of them: {run.run_dir}/quarantine.jsonl"
        )


def _show_timings(run: RunSummary) -> None:
    if not run.timings:
        return
    rows = [StageRow(stage=stage, **numbers) for stage, numbers in run.timings.items()]
    cells = table_cells(rows)
    if run.cost:
        for row, cell in zip(rows, cells, strict=True):
            cell["cost"] = f"${run.cost['by_stage'].get(row.stage, 0.0):.4f}"
    table = Table(title="where the time went", title_justify="left")
    for heading in cells[0]:
        table.add_column(heading, justify="left" if heading == "stage" else "right")
    for cell in cells:
        table.add_row(*cell.values())
    console.print(table)


def _scores(run: RunSummary) -> str:
    return ", ".join(f"{name} {value:.3f}" for name, value in run.eval.items())


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
