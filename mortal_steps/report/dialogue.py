"""Completions for reading: the text of one turn, or a dialogue with tools.

    model: I add them.
      calls add(amount=6)
    | add: total 6
    model: The total is 6.

Nobody sampled the lines that begin with `|`: they are what tools answered. All others the model
did. Lines are wrapped, and of a long answer the first are shown.
"""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from mortal_steps.types import Completion, Problem, Prompt

WIDTH = 64
"""Columns of a dialogue, which is printed beside a name."""
MOST_LINES = 8
"""Lines of an answer that are shown."""


def prompt_text(prompt: Prompt) -> str:
    """Return a prompt on its own, or the messages of a conversation below each other."""
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{each.get('role')}: {_plain(each.get('content'))}" for each in prompt)


def prompt_of(problem: Problem, completion: Completion) -> Prompt:
    """Return what a completion continues: the problem's prompt, or its own."""
    if completion.prompt is None:
        return problem.prompt
    return [dict(message) for message in completion.prompt]


def completion_text(completion: Completion) -> str:
    """Return a completion's text, or its dialogue where it had an environment."""
    if completion.episode is None:
        return completion.text
    lines = [line for message in completion.messages for line in _lines(message)]
    if completion.episode.failure is not None:
        lines.append(f"(failed: {completion.episode.failure})")
    elif completion.episode.stop == "length":
        lines.append("(no room for more)")
    elif completion.episode.stop == "max_iterations":
        lines.append("(not answered any more)")
    if completion.differing_answer is not None:
        lines.append(f"(asked again after a kill, {completion.differing_answer})")
    return "\n".join(lines)


def _lines(message: Mapping[str, Any]) -> Iterator[str]:
    text = _plain(message.get("content")).strip()
    if message.get("role") == "tool":
        yield from _answer(f"{message.get('name')}: {text}")
        return
    thoughts = str(message.get("reasoning_content") or message.get("thinking") or "").strip()
    if thoughts:
        yield from _wrapped(thoughts, "model, thinking: ", " " * 7)
    if text or not message.get("tool_calls"):
        yield from _wrapped(text, "model: ", " " * 7)
    elif not thoughts:
        yield "model:"
    for call in message.get("tool_calls") or ():
        yield from _wrapped(call_text(call), "  calls ", " " * 8)


def _answer(text: str) -> Iterator[str]:
    lines = list(_wrapped(text, "| ", "| "))
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield f"| ... {len(lines) - MOST_LINES} more lines"


def _wrapped(text: str, first: str, rest: str) -> Iterator[str]:
    """Yield the lines of a text, each no longer than the width, behind what they begin with."""
    before = first
    for line in text.splitlines() or [""]:
        wrapped = textwrap.wrap(line, WIDTH - len(first), break_on_hyphens=False) or [""]
        for each in wrapped:
            yield f"{before}{each}".rstrip()
            before = rest


def _plain(content: Any) -> str:
    """Return a message's content as text: blocks one behind the other."""
    if not isinstance(content, list):
        return str(content or "")
    blocks = (each.get("text", each) if isinstance(each, Mapping) else each for each in content)
    return "".join(map(str, blocks))


def call_text(call: Mapping[str, Any]) -> str:
    called = call.get("function", call)
    given = called.get("arguments")
    if not isinstance(given, Mapping):
        return f"{called.get('name')}({given!r})"
    arguments = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"{called.get('name')}({arguments})"
