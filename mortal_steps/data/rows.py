"""Rows of a dataset become `Problem`s, one after the other, their columns and values checked."""

from collections.abc import Iterable, Iterator

from mortal_steps.data.sources import Row
from mortal_steps.data.values import NO_PROMPT, as_json, check_prompt, is_plain
from mortal_steps.errors import DataError
from mortal_steps.extensions import nearest
from mortal_steps.types import Problem

TAKEN_BY_TRL = ("prompts", "completions", "trainer_state", "log_extra", "log_metric")
"""Keyword arguments of every reward function, after which no column may be named."""
AS_CHAT = " (a row without a prompt counts as chat messages)"


def problems_of(
    rows: Iterator[Row],
    prompt_column: str,
    prefix: str,
    origin: str,
    *,
    may_lack_prompts: bool = False,
    are_learned: bool = False,
) -> Iterator[Problem]:
    """Yield each row as a problem with the id `<prefix>-<row>`, its values checked; raises
    `DataError`. With `may_lack_prompts`, a row without one has `NO_PROMPT`, a chat message.
    Other prompts may be text only where rows `are_learned`: a prompt is then a column like others,
    and is checked with them."""
    names: dict[str, None] = {}
    is_text: bool | None = None
    index = -1
    for index, row in enumerate(rows):
        if may_lack_prompts and prompt_column == "prompt" and row.get("prompt") is None:
            row = {**row, "prompt": NO_PROMPT}
        if prompt_column not in row:
            others = (name for other in rows for name in other)
            _check_prompt_column({**names, **row, **dict.fromkeys(others)}, prompt_column, origin)
        if not row.keys() <= names.keys():
            names |= dict.fromkeys(row)
            _check_columns(names, prompt_column, origin)
        columns = dict(row)
        prompt = columns.pop(prompt_column, None)
        if not all(map(is_plain, columns.values())):
            columns = {
                name: as_json(value, f"{origin}, row {index}, column {name!r}")
                for name, value in columns.items()
            }
        if not (type(prompt) is str and is_plain(prompt) and prompt.strip()):
            cell = f"{origin}, row {index}, column {prompt_column!r}"
            prompt = as_json(prompt, cell)
            if not (may_lack_prompts and prompt == NO_PROMPT):
                check_prompt(prompt, cell)
        is_missing = are_learned and prompt == NO_PROMPT
        if is_text is None and not is_missing:
            is_text = isinstance(prompt, str)
        if isinstance(prompt, str) != is_text and not is_missing:
            raise DataError(
                f"{origin}, row {index}: prompts are both text and chat messages; use one kind for "
                f"all rows{AS_CHAT if may_lack_prompts else ''}"
            )
        yield Problem(id=f"{prefix}-{index}", prompt=prompt, columns=columns)
    if index < 0:
        raise DataError(f"{origin}: there are no rows in it")


def _check_prompt_column(names: Iterable[str], prompt_column: str, origin: str) -> None:
    """Raise `DataError` where no row has the column of prompts. Rows of a JSON lines file may lack
    it, which is None, as in a `datasets` table."""
    names = list(names)
    if prompt_column not in names:
        near = nearest(prompt_column, names, cutoff=0.6)
        hint = f"; did you mean {near!r}?" if near else ""
        raise DataError(
            f"data.prompt_column = {prompt_column!r}: no such column in {origin}{hint}; "
            f"columns there: {', '.join(names)}"
        )


def _check_columns(names: Iterable[str], prompt_column: str, origin: str) -> None:
    if prompt_column != "prompt" and "prompt" in names:
        raise DataError(
            f"data.prompt_column = {prompt_column!r}: {origin} has a column 'prompt' besides, and "
            "both would be the prompt; use that one, or rename or remove it"
        )
    for name in names:
        as_json(name, f"{origin}, the name of a column")
        if name in TAKEN_BY_TRL:
            raise DataError(
                f"{origin}: its column {name!r} has the name of an argument that every reward "
                "function is given; rename it"
            )
