"""How recipes look on a terminal, and where models come from."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.text import Text

from mortal.terminal.console import console, print_columns
from mortal.terminal.display import line
from mortal_steps.recipes.lineage.ancestors import Ancestor, Taken
from mortal_steps.recipes.lineage.code import Code
from mortal_steps.recipes.record import RecipeFolder, RecipeRecord
from mortal_steps.recipes.report.picture import WORDS
from mortal_steps.recipes.report.view import DIGITS, StageView, how_to_go_on, stands, where_of
from mortal_steps.recipes.stages import Output
from mortal_steps.report.printable import printable
from mortal_steps.report.summary import PAGE
from mortal_steps.report.units import duration, moment, money

HEADING = ("stage", "kind", "state", "took", "digest", "begins with")


def show_recipe(folder: RecipeFolder, record: RecipeRecord, stages: Sequence[StageView]) -> None:
    """Print a recipe: its stages, what each was made of and has reached, and how to go on."""
    console.print(Text.assemble((printable(record.name), "bold"), f"  {stands(record)}"))
    if record.error:
        line("error" if record.status == "failed" else "reason", record.error)
    line("began", f"{duration(time.time() - record.began_at)} ago")
    if dollars := sum(stage.dollars or 0.0 for stage in stages):
        line("cost", f"${money(dollars)}, estimated")
    line("files", str(folder.store.root))
    if folder.store.path(PAGE).exists():
        line("report", str(folder.store.path(PAGE)))
    if go_on := how_to_go_on(record, where_of(folder.runs_dir, folder.name)):
        line("next", go_on)
    print_columns([HEADING, *map(_row, stages)], title="stages")
    console.print()
    for stage in stages:
        if stage.reached:
            line(stage.name, stage.reached)
        if stage.record.job_id:
            line("", stage.record.job_id)


def _row(stage: StageView) -> tuple[str, ...]:
    state = WORDS[stage.record.standing]
    return (stage.name, stage.kind, state, stage.took, stage.digest, stage.begins_with or "-")


def recipe_lines(recipes: Sequence[tuple[RecipeFolder, RecipeRecord]]) -> list[str]:
    """Return a line or two for each recipe, for lists that are looked at again and again."""
    found = []
    for folder, record in recipes:
        stages = ", ".join(
            f"{name} {WORDS[stage.standing]}" for name, stage in record.stages.items()
        )
        ago = duration(time.time() - record.updated_at)
        found.append(f"recipe {record.name}  {record.status}  {ago} ago: {stages}")
        if go_on := how_to_go_on(record, where_of(folder.runs_dir, folder.name)):
            found.append(f"    {go_on}")
    return found


def show_lineage(ancestors: Sequence[Ancestor]) -> None:
    """Print where a model comes from: what was made last comes first."""
    names = {each.folder: each.name for each in ancestors}
    for number, each in enumerate(ancestors):
        if number:
            console.print()
        console.print(Text.assemble((printable(each.name), "bold"), f"  {each.what}"))
        if each.recipe:
            line("stage", f"{each.recipe}/{each.stage}")
        if each.reached:
            line("reached", each.reached)
        if each.made_at is not None:
            line("at", moment(each.made_at))
        line("in", each.folder)
        if each.damage:
            line("DAMAGED", each.damage)
        for output in each.outputs:
            line("made", f"{_below(output.path, each.folder)}  {_known_by(output)} {output.sha256}")
        for taken in each.takes:
            _show_taken(taken, names)
        _show_code(each.code, each.code_sha256)


def _below(path: str, folder: str) -> str:
    whole = Path(path)
    below = str(whole.relative_to(folder)) if whole.is_relative_to(folder) else path
    return "this folder" if below == "." else below


def _show_taken(taken: Taken, names: dict[str, str]) -> None:
    if taken.made_by is not None:
        noted = taken.output
        what = f", {_below(noted.path, taken.made_by)}" if noted and noted.kind != "run" else ""
        digest = f"  {_known_by(noted)} {noted.sha256[:DIGITS]}" if noted else ""
        said = f"{names.get(taken.made_by, taken.made_by)}{what}{digest}"
    else:
        said = "  ".join(filter(None, (taken.name, _in_words(taken.content))))
    about = f"  ({taken.about})" if taken.about else ""
    damage = f"  DAMAGED: {taken.damage}" if taken.damage else ""
    line("from", f"{taken.key} = {said}{about}{damage}")


def _known_by(output: Output) -> str:
    """Say what the digest of an output is one of: that of a model is not the one of its weights,
    which `mortal show` prints."""
    known_by = {"run": "uid", "model": "folder sha256", "folder": "folder sha256"}
    return known_by.get(output.kind, "sha256")


def _in_words(content: Any) -> str:
    """Return what tells data or a model from others, such as `commit 3fa2`."""
    if not isinstance(content, dict):
        return str(content or "")
    shown = {key: value for key, value in content.items() if key not in ("hub", "type")}
    return "  ".join(f"{key} {value}" for key, value in shown.items())


def _show_code(code: Code | None, sha256: Sequence[str]) -> None:
    if sha256:
        line("code", "sha256 " + ", ".join(each[:DIGITS] for each in sha256))
    if code is not None:
        changed = f", with changes (diff {code.diff_sha256[:DIGITS]})" if code.diff_sha256 else ""
        new = f", new files: {', '.join(code.new_files)}" if code.new_files else ""
        line("repository", f"{code.root}, commit {code.commit or '(none yet)'}{changed}{new}")
