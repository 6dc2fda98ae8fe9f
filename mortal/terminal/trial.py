"""`mortal test-reward`: the scores of each completion, and each function over all of them."""

import json
from typing import Any

import typer

from mortal.terminal.console import print_columns
from mortal_steps.orchestration.trials.trial import Trial
from mortal_steps.report.dialogue import prompt_text
from mortal_steps.report.printable import printable
from mortal_steps.report.reward_functions import function_cells
from mortal_steps.report.units import counted, number

TEXT_WIDTH = 28
"""Characters of a prompt or a completion in the table, at most."""
MOST_COLUMNS = 3
"""Columns of a row in the table, at most."""
MOST_PLACES = 6
"""Completions that are named beside the reason that masked them."""


def show_trial(trial: Trial) -> None:
    print_columns(_completion_rows(trial), title=counted(len(trial.completions), "completion"))
    cells = function_cells(trial.functions)
    print_columns(
        [list(cells[0]), *(list(row.values()) for row in cells)],
        title="reward functions",
        numbers=True,
    )
    for text in conclusions(trial):
        typer.echo(text)


def conclusions(trial: Trial) -> list[str]:
    found = []
    reasons: dict[str, list[str]] = {}
    for each in trial.completions:
        for why in each.masked:
            reasons.setdefault(why, []).append(each.place)
    for why, places in reasons.items():
        more = f" and {len(places) - MOST_PLACES} more" if len(places) > MOST_PLACES else ""
        found.append(printable(f"masked: {', '.join(places[:MOST_PLACES])}{more}: {why}"))
    if trial.num_masked:
        found.append(
            f"{trial.num_masked} of {counted(len(trial.completions), 'completion')} were not scored"
        )
    if trial.stops:
        found.append(
            'a run would stop here; with rewards.on_error = "mask" it leaves these problems out'
        )
    return found


def _completion_rows(trial: Trial) -> list[list[str]]:
    functions = [
        each.name if each.weight == 1 else f"{each.name} x {each.weight:g}"
        for each in trial.functions
    ]
    columns = list(trial.completions[0].columns)[:MOST_COLUMNS]
    return [
        ["where", "prompt", *columns, "completion", *functions, "reward", "seconds"],
        *(
            [
                each.place,
                _short(prompt_text(each.prompt)),
                *(_short(_told(each.columns.get(name))) for name in columns),
                _short(each.text),
                *map(number, each.rewards.values()),
                "masked" if each.masked else number(each.reward),
                number(each.seconds),
            ]
            for each in trial.completions
        ),
    ]


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    """Shorten a text to one line; a completion answers at its end, so its middle goes."""
    line = " ".join(printable(text).split())
    if len(line) <= TEXT_WIDTH:
        return line
    end = TEXT_WIDTH // 2 - 1
    return f"{line[: TEXT_WIDTH - end - 1]}…{line[-end:]}"
