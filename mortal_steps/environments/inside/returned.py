"""What environments return or raise, as a chat or a message to the user has it."""

import json
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.environments.messages import ToolAnswer
from mortal_steps.system.texts import printable


def observed_prompt(
    prompt: Sequence[Mapping[str, Any]], given: list[Mapping[str, Any]], observed: Any
) -> list[Mapping[str, Any]] | None:
    """Return the messages that `reset` was given, as it left them, with the observation appended to
    the last one; None if these are the `prompt`. Raises `TypeError` for what is neither text nor
    content blocks, or cannot be JSON, and `ValueError` for numbers that are not finite."""
    if observed is None:
        if given == prompt:
            return None
        json.dumps(given, allow_nan=False)
        return given
    if not isinstance(observed, str | list):
        raise TypeError(
            f"returned {type(observed).__name__}; it returns text, a list of content blocks or None"
        )
    json.dumps(observed, allow_nan=False)
    *before, last = given
    content = last["content"]
    if isinstance(observed, list) and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if isinstance(observed, str) and isinstance(content, list):
        observed = [{"type": "text", "text": observed}]
    return [*before, {**last, "content": content + observed}]


def answer_of(name: str, result: Any, seconds: float) -> ToolAnswer:
    """Return a tool's result as TRL hands it to the chat: a list as it is, all else as text. Raises
    `TypeError` for a list with images, or with what JSON cannot hold."""
    if not isinstance(result, list):
        return ToolAnswer(name=name, content=str(result), seconds=seconds)
    if any(isinstance(block, dict) and block.get("type") == "image" for block in result):
        raise TypeError(f"the tool {name!r} returned an image, and models here read text alone")
    try:
        content = json.dumps(result)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"the tool {name!r} returned a list of what JSON cannot hold ({error}); return text"
        ) from None
    if _is_finite(result):
        return ToolAnswer(name=name, content=result, seconds=seconds)
    return ToolAnswer(name=name, content=content, in_json=True, seconds=seconds)


def _is_finite(result: list[Any]) -> bool:
    try:
        json.dumps(result, allow_nan=False)
    except ValueError:
        return False
    return True


def raised(error: BaseException) -> str:
    """Return the exception and its place, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return printable(" ".join(f"raised {type(error).__name__}: {error}{where}".split()))
