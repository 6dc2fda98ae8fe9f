"""`mortal test-reward`: the scores of each completion, and each function over all of them."""

import json
from collections.abc import Sequence
from typing import Any

import typer

from mortal.terminal.console import print_columns
from mortal_steps.orchestration.trials.trial import Trial, TriedFunction
from mortal_steps.report.dialogue import prompt_text
from mortal_steps.report.printable import printable
from mortal_steps.report.units import number

TEXT_WIDTH = 28
"""Characters of a prompt or a completion in the table, at most."""
MOST_COLUMNS = 3
"""Columns of a row in the table, at most."""
MOST_PLACES = 6
"""Completions that are named beside the reason that masked them."""
TROUBLES = ("abstained", "failed", "failed_calls")
"""Columns that are left out if all their values are 0."""


def show_trial(trial: Trial) -> None:
    print_columns(_completion_rows(trial), title=f"{len(trial.completions)} completions")
    print_columns(_function_rows(trial.functions), title="functions", numbers=True)
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
        found.append(f"{trial.num_masked} of {len(trial.completions)} completions were not scored")
    if trial.stops:
        found.append(
            'a run would stop here; with rewards.on_error = "mask" it leaves these problems out'
        )
    return found


def _completion_rows(trial: Trial) -> list[list[str]]:
    functions = [
        function.name if function.weight == 1 else f"{function.name} x {function.weight:g}"
        for function in trial.functions
    ]
    columns = list(trial.completions[0].columns)[:MOST_COLUMNS]
    heading = ["where", "prompt", *columns, "completion", *functions, "reward", "seconds"]
    return [
        heading,
        *(
            [
                each.place,
                _short(prompt_text(each.prompt)),
                *(_short(_told(each.columns.get(name))) for name in columns),
                _short(each.text),
                *(number(score) for score in each.rewards.values()),
                "masked" if each.masked else number(each.reward),
                f"{each.seconds:.3f}",
            ]
            for each in trial.completions
        ),
    ]


def _function_rows(functions: Sequence[TriedFunction]) -> list[list[str]]:
    rows = [_function_values(each) for each in functions]
    shown = [
        name for name in rows[0] if name not in TROUBLES or any(row[name] != "0" for row in rows)
    ]
    return [
        [name.replace("_", " ") for name in shown],
        *([row[name] for name in shown] for row in rows),
    ]


def _function_values(function: TriedFunction) -> dict[str, str]:
    return {
        "function": function.name,
        "weight": f"{function.weight:g}",
        "mean": number(function.mean),
        "std": number(function.std),
        "scored": f"{function.num_scored}",
        "abstained": f"{function.num_abstained}",
        "failed": f"{function.num_failed}",
        "failed_calls": f"{function.failed_calls}",
        "latency_ms": f"{1000 * function.latency_s:.1f}",
    }


def _told(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    """Shorten a text to one line; a completion answers at its end, so its middle goes."""
    line = " ".join(printable(text).split())
    if len(line) <= TEXT_WIDTH:
        return line
    end = TEXT_WIDTH // 2 - 1
    return f"{line[: TEXT_WIDTH - end - 1]}…{line[-end:]}"
