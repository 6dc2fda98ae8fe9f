"""`mortal rewards test`: a table on a terminal, tab-separated values in a pipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import typer
from rich.table import Table

from mortal.terminal.console import console
from mortal_steps.orchestration.trial import Trial, TriedCompletion, TriedFunction
from mortal_steps.report.printable import printable
from mortal_steps.report.samples import prompt_text
from mortal_steps.report.units import number

TEXT_WIDTH = 28
"""Characters of a prompt or a completion in the table, at most."""
MOST_PLACES = 6
"""Completions that are named beside the reason that masked them."""
TROUBLES = ("abstained", "failed", "failed_calls")
"""Columns that a terminal has where there is something to say in them."""


def show_trial(trial: Trial) -> None:
    """Print every completion, why some have no scores, and each function over all of them."""
    if console.is_terminal:
        console.print(_completions_table(trial))
        console.print(_functions_table(trial.functions))
    else:
        _print_values(_completion_values(trial))
        typer.echo()
        _print_values([_function_values(each) for each in trial.functions])
    for text in conclusions(trial):
        typer.echo(text, err=not console.is_terminal)


def conclusions(trial: Trial) -> list[str]:
    """Return what failed, in sentences."""
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


def _completions_table(trial: Trial) -> Table:
    table = Table(title=f"{len(trial.completions)} completions", title_justify="left")
    table.add_column("where", no_wrap=True)
    for heading in ("prompt", "completion"):
        table.add_column(heading, max_width=TEXT_WIDTH)
    for function in trial.functions:
        weighted = "" if function.weight == 1 else f" x {function.weight:g}"
        table.add_column(f"{function.name}{weighted}", justify="right")
    table.add_column("reward", justify="right", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    for each in trial.completions:
        table.add_row(
            each.place,
            _short(prompt_text(each.prompt)),
            _short(each.text),
            *(number(score) for score in each.rewards.values()),
            _reward(each),
            f"{each.seconds:.3f}",
        )
    return table


def _functions_table(functions: Sequence[TriedFunction]) -> Table:
    table = Table(title="functions", title_justify="left")
    rows = [_function_values(each) for each in functions]
    shown = [
        name for name in rows[0] if name not in TROUBLES or any(row[name] != "0" for row in rows)
    ]
    for name in shown:
        left = name == "function"
        table.add_column(
            name.replace("_", " "),
            justify="left" if left else "right",
            no_wrap=not left,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    return table


def _completion_values(trial: Trial) -> list[dict[str, str]]:
    return [
        {
            "where": each.place,
            "problem_id": each.problem_id,
            "reward": _reward(each),
            **{name: number(score) for name, score in each.rewards.items()},
            "seconds": f"{each.seconds:.3f}",
            "why": "; ".join(each.masked),
            "completion": each.text,
        }
        for each in trial.completions
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


def _print_values(rows: Sequence[Mapping[str, str]]) -> None:
    """Tab-separated, under their names; a line break or a tab in a text is an escape."""
    typer.echo("\t".join(map(_one_line, rows[0])))
    for row in rows:
        typer.echo("\t".join(map(_one_line, row.values())))


def _reward(completion: TriedCompletion) -> str:
    return "masked" if completion.masked else number(completion.reward)


def _short(text: str) -> str:
    """Shorten a text to one line; a completion answers at its end, so its middle goes."""
    line = " ".join(printable(text).split())
    if len(line) <= TEXT_WIDTH:
        return line
    end = TEXT_WIDTH // 2 - 1
    return f"{line[: TEXT_WIDTH - end - 1]}…{line[-end:]}"


def _one_line(text: str) -> str:
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")
