"""What environments return or raise, as a chat or a message to the user has it."""

import json
import traceback
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.environments.messages import ToolAnswer
from mortal_steps.errors import ConfigError
from mortal_steps.system.texts import printable


def observed_prompt(
    prompt: Sequence[Mapping[str, Any]], observed: Any
) -> list[Mapping[str, Any]] | None:
    """Return the messages with the observation appended to the last one; None if there is none.
    Raises `TypeError` for what is neither text nor content blocks."""
    if observed is None:
        return None
    if not isinstance(observed, str | list):
        raise TypeError(
            f"returned {type(observed).__name__}; it returns text, a list of content blocks or None"
        )
    *before, last = prompt
    content = last["content"]
    if isinstance(observed, list) and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    if isinstance(observed, str) and isinstance(content, list):
        observed = [{"type": "text", "text": observed}]
    return [*before, {**last, "content": content + observed}]


def answer_of(name: str, result: Any, seconds: float) -> ToolAnswer:
    """Return a tool's result as TRL hands it to the chat: content blocks as they are, all else as
    text. Raises `ConfigError` for blocks that are no text."""
    if not isinstance(result, list):
        return ToolAnswer(name=name, content=str(result), seconds=seconds)
    if any(isinstance(block, dict) and block.get("type") == "image" for block in result):
        raise ConfigError(
            f"environment: the tool {name!r} returned an image, and models here read text alone"
        )
    try:
        json.dumps(result, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigError(
            f"environment: the tool {name!r} returned a list that is no list of text blocks "
            f"({error}); return text"
        ) from None
    return ToolAnswer(name=name, content=result, seconds=seconds)


def raised(error: BaseException) -> str:
    """Return what was raised and where, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return printable(" ".join(f"raised {type(error).__name__}: {error}{where}".split()))
