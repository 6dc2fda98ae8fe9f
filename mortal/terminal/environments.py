"""`mortal test-environment`: what the tools are, what they answered, and what differed."""

from collections.abc import Mapping
from typing import Any

import typer
from rich.text import Text

from mortal.terminal.console import console, in_columns
from mortal_steps.environments.messages import EnvironmentTools
from mortal_steps.environments.trials.tried import TriedEnvironments, TriedRow
from mortal_steps.report.dialogue import prompt_text
from mortal_steps.report.printable import printable
from mortal_steps.report.units import number

ANSWER_WIDTH = 60
"""Characters of an answer that are shown."""


def show_environments(tried: TriedEnvironments) -> None:
    """Print the tools of each environment, each row's episode, and what came of repeating them."""
    for name, offered in tried.environments.items():
        _show_tools(name, offered)
    for row in tried.rows:
        _show_row(row)
    typer.echo()
    for text in conclusions(tried):
        typer.echo(printable(text))


def conclusions(tried: TriedEnvironments) -> list[str]:
    found = []
    for row in tried.rows:
        episode = row.episode
        if episode.failure is not None:
            found.append(f"{row.problem_id}: {episode.failure}")
        for call in episode.calls:
            if call.failure is not None:
                found.append(f"{row.problem_id}: {call.call}: {call.failure}")
        for name, why in episode.failures.items():
            found.append(f"{row.problem_id}: reward {name}: {why}")
        for each in row.differences:
            found.append(
                f"{row.problem_id}: {each.what} differs when it is repeated {each.where}: "
                f"{_short(each.before)} before, {_short(each.after)} then"
            )
    if any(row.differences for row in tried.rows):
        found.append(
            "a run with what differs does not end with the same bits after a kill: let it depend "
            "on its row, its calls, and `random` and `numpy.random`, which have streams per episode"
        )
    count = sum(len(row.episode.calls) for row in tried.rows)
    if not found:
        found.append(
            f"{count} calls were repeated in the same process and in another one: the same answers"
        )
    return found


def _show_tools(name: str, offered: EnvironmentTools) -> None:
    about = [name or "tools"]
    if offered.reward is not None:
        about.append(f"reward {offered.reward} (get_reward)")
    console.print()
    console.print(Text(", ".join(about), style="bold"))
    rows = [[_signature(tool), _first_line(tool)] for tool in offered.tools]
    if offered.replies:
        rows.append(["_reply(text: string)", "Answers messages that call no tool."])
    for line in in_columns(rows) if rows else ["no tools"]:
        console.print(f"  {line}")


def _signature(tool: Mapping[str, Any]) -> str:
    function = tool["function"]
    parameters = function["parameters"]
    required = parameters.get("required", ())
    shown = [
        f"{name}{'' if name in required else '?'}: {_type(schema)}"
        for name, schema in parameters.get("properties", {}).items()
    ]
    return f"{function['name']}({', '.join(shown)})"


def _type(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return " | ".join(map(repr, schema["enum"]))
    if "anyOf" in schema:
        return " | ".join(map(_type, schema["anyOf"]))
    kind = schema.get("type", "any")
    if kind == "array" and "items" in schema:
        return f"array of {_type(schema['items'])}"
    return kind if isinstance(kind, str) else " | ".join(kind)


def _first_line(tool: Mapping[str, Any]) -> str:
    return str(tool["function"].get("description", "")).partition("\n")[0]


def _show_row(row: TriedRow) -> None:
    episode = row.episode
    console.print()
    console.print(Text(f"row {row.problem_id} {row.environment}".rstrip(), style="bold"))
    for text in prompt_text([dict(each) for each in episode.prompt]).splitlines():
        console.print(f"  {text}")
    answers = [["reset", "failed" if episode.failure else "", _ms(episode.seconds)]]
    for each in episode.calls:
        told = "no answer" if each.failure else _short(each.content)
        answers.append([str(each.call), told, _ms(each.seconds)])
    for text in in_columns(answers):
        console.print(f"  {text}")
    if episode.rewards:
        scores = ", ".join(f"{name} {number(value)}" for name, value in episode.rewards.items())
        console.print(f"  rewards: {scores}")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.1f} ms"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= ANSWER_WIDTH else f"{text[: ANSWER_WIDTH - 1]}…"
