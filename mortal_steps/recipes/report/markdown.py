"""A recipe as one page of Markdown: its stages in a table."""

from pathlib import Path

from mortal_steps.recipes.record import RecipeRecord, StageRecord
from mortal_steps.report.units import duration
from mortal_steps.runs.argument import run_argument

SIGNS = {
    "complete": "✅",
    "running": "▶️",
    "failed": "❌",
    "stopped": "⏸️",
    "interrupted": "⏸️",
    "asks": "❓",
    "refused": "⛔",
    "waits": "·",
    "ready": "·",
}


def recipe_page(record: RecipeRecord, runs_dir: Path) -> str:
    """Return the page, in Markdown."""
    lines = [
        f"# {record.name}: {record.status}",
        "",
        *([f"> {record.error}", ""] if record.error else []),
        "| | stage | begins with | state | took | what was reached | digest |",
        "|---|---|---|---|---|---|---|",
        *(_row(name, stage) for name, stage in record.stages.items()),
        "",
        f"`mortal show {run_argument(runs_dir / record.name)}` shows this on a terminal; each "
        f"run of a stage has its own page. All of it lies in `{runs_dir}`.",
    ]
    return "\n".join(lines)


def _row(name: str, stage: StageRecord) -> str:
    took = ""
    if stage.began_at is not None and stage.ended_at is not None:
        took = duration(stage.ended_at - stage.began_at)
    elif stage.standing == "complete":
        took = "before"
    cells = [
        SIGNS[stage.standing],
        f"**{name}** ({stage.kind})",
        ", ".join(stage.parents) or "-",
        stage.standing,
        took,
        stage.headline.replace("|", "\\|").replace("\n", " "),
        f"`{stage.sha256[:10]}`" if stage.sha256 else "",
    ]
    return f"| {' | '.join(cells)} |"
