"""`report.html` of a recipe: the graph as a picture, and a table of its stages.

    runs/.recipes/<recipe>/report.html

It is derived, and written again whenever the recipe has come further.
"""

import html
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from markdown_it import MarkdownIt

from mortal_steps.errors import StoreError
from mortal_steps.recipes.record import RecipeFolder, RecipeRecord
from mortal_steps.recipes.report.picture import STYLE, WORDS, picture
from mortal_steps.recipes.report.view import (
    StageView,
    how_to_go_on,
    look_at_stages,
    stands,
    where_of,
)
from mortal_steps.report.markdown import code, fenced, table
from mortal_steps.report.printable import printable
from mortal_steps.report.report_files import PAGE as PAGE_OF_RUNS
from mortal_steps.report.report_files import STYLE as STYLE_OF_RUNS
from mortal_steps.report.summary import PAGE
from mortal_steps.report.units import duration, money
from mortal_steps.store.files import write_atomically

logger = logging.getLogger(__name__)

EVERY_S = 30.0
"""Seconds between two pages of a recipe whose record says the same: its runs go on."""


class RecipePage:
    """The page of a recipe that is driven."""

    def __init__(self, folder: RecipeFolder) -> None:
        self._folder = folder
        self._shown: RecipeRecord | None = None
        self._written_at = 0.0

    def write(self, record: RecipeRecord) -> None:
        """Write the page, if there may be something new to tell. Errors are logged, as the recipe
        is more important."""
        plain, now = replace(record, updated_at=0.0), time.monotonic()
        if plain == self._shown and now - self._written_at < EVERY_S:
            return
        self._shown, self._written_at = plain, now
        try:
            write_page(self._folder, record)
        except (StoreError, OSError) as error:
            logger.warning("the report is not written: %s", error)


def write_page(folder: RecipeFolder, record: RecipeRecord) -> Path:
    """Write the page of a recipe, and return its path."""
    stages = look_at_stages(record, folder.runs_dir)
    path = folder.store.path(PAGE)
    content = page_html(record, stages, where_of(folder.runs_dir, record.name))
    write_atomically(path, content.encode())
    return path


def page_html(record: RecipeRecord, stages: Sequence[StageView], where: str = "") -> str:
    """Return a self-contained page, in which commands are told `where` the runs are. HTML in what
    is shown stays text, and no link runs a script."""
    render = MarkdownIt("commonmark", {"html": False}).enable("table").render
    parts = [render("\n\n".join(_heading(record, stages, where)))]
    if stages:
        parts += [picture(stages), render("\n\n".join(_below(record, stages, where)))]
    return PAGE_OF_RUNS.format(
        title=html.escape(printable(record.name)),
        style=STYLE_OF_RUNS + STYLE,
        body="\n".join(parts),
    )


def _heading(record: RecipeRecord, stages: Sequence[StageView], where: str) -> Iterator[str]:
    yield f"# {code(record.name)}: {stands(record)}"
    at = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    now = record.updated_at or time.time()  # of a record that is being written
    facts = [f"{duration(now - record.began_at)} in this attempt"]
    if dollars := sum(stage.dollars or 0.0 for stage in stages):
        facts.append(f"${money(dollars)} in all, estimated")
    yield " · ".join([*facts, f"written {at}"])
    if record.error:
        yield "It failed:" if record.status == "failed" else "It ended early:"
        yield fenced(record.error)
    if go_on := how_to_go_on(record, where):
        yield f"Next: {printable(go_on)}."


def _below(record: RecipeRecord, stages: Sequence[StageView], where: str) -> Iterator[str]:
    yield "In a picture of a run: training as a line, each evaluation as a dot."
    yield "## Stages"
    priced = any(stage.dollars for stage in stages)
    yield table(
        ["stage", "state", "took", *(["cost"] if priced else []), "run or folder", "digest"],
        [_row(stage, priced=priced) for stage in stages],
        "lll" + "r" * priced + "ll",
    )
    yield "## What was reached"
    yield "\n".join(
        f"- **{stage.name}**: {code(stage.reached)}" for stage in stages if stage.reached
    )
    yield "## Commands for this recipe"
    named = f"{record.name}{where}"
    yield fenced(f"mortal show {named}\nmortal lineage {named}\nmortal verify {named}")


def _row(stage: StageView, *, priced: bool) -> list[str]:
    job = code(stage.record.job_id) if stage.record.job_id else ""
    return [
        f"**{stage.name}** ({stage.kind})",
        WORDS[stage.record.standing],
        stage.took,
        *([f"${money(stage.dollars)}" if stage.dollars else ""] if priced else []),
        f"[{job}]({stage.page})" if stage.page else job,
        code(stage.digest) if stage.digest else "",
    ]
