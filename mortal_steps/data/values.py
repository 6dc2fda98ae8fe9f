"""What a row may hold: a prompt, and values that JSON carries to the reward functions."""

import datetime
import math
from collections.abc import Mapping
from typing import Any

from mortal_steps.errors import DataError
from mortal_steps.system.texts import cut

TEXT_ALONE = "MORTAL trains on text alone: models get no pictures, audio or video"
OF_MEDIA = ("PIL", "torchcodec")
"""Packages whose objects are pictures, audio or video."""

NO_PROMPT: list[dict[str, Any]] = [{"role": "user", "content": ""}]
"""The prompt of a row that has none, as TRL has it: what an environment's `reset` observes becomes
its content."""
DEEPEST = 100
"""Levels of nesting in a column; the JSON of the run store cannot hold many more."""


def check_prompt(prompt: Any, origin: str) -> None:
    """Raise `DataError`, whose message begins with `origin`, for a value that is no prompt."""
    if isinstance(prompt, str):
        if not prompt.strip():
            raise DataError(f"{origin}: the prompt is empty; remove the row")
        return
    if not isinstance(prompt, list):
        raise DataError(
            f"{origin}: {shown(prompt)} is neither text nor a list of chat messages such as "
            '[{"role": "user", "content": "..."}]'
        )
    if not prompt:
        raise DataError(f"{origin}: the prompt holds no messages; remove the row")
    for message in prompt:
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise DataError(
                f"{origin}: {shown(message)} is no chat message; write each as "
                '{"role": "user", "content": "..."}'
            )
        _check_parts(message.get("content"), origin)
    if not any(message.get("content") for message in prompt):
        raise DataError(f"{origin}: every message is empty; remove the row")


def _check_parts(content: Any, origin: str) -> None:
    """Refuse the content of a message that has parts which are no text, such as a picture."""
    for part in content if isinstance(content, list) else ():
        if not isinstance(part, dict) or part.get("type") != "text":
            raise DataError(
                f"{origin}: {shown(part)} is no text, and {TEXT_ALONE}; write the content of each "
                "message as text, or remove the row"
            )


def is_plain(value: Any) -> bool:
    """Return whether JSON can hold the value as it is; a quick check."""
    kind = type(value)
    if kind is str:
        return value.isascii() or _is_unicode(value)
    return kind is int or kind is bool or value is None


def _is_unicode(text: str) -> bool:
    """Return whether it has no halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def as_json(value: Any, origin: str, depth: int = 0) -> Any:
    """Return the value as JSON carries it to the reward functions: dates and times as ISO text, NaN
    and other missing values as None, arrays as lists. Raises `DataError` for any other."""
    if depth > DEEPEST:
        raise DataError(
            f"{origin}: lists and objects within each other, more than {DEEPEST} deep; store it as "
            "text, or remove the column"
        )
    if isinstance(value, str):
        if not _is_unicode(value):
            raise DataError(f"{origin}: {shown(value)} is no valid Unicode text; repair the row")
        return value
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise DataError(
                f"{origin}: {value} is not a number that JSON can carry; remove the row"
            )
        return None if math.isnan(value) else value
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat() if value == value else None  # NaT of pandas
    if isinstance(value, list | tuple):
        return [as_json(item, origin, depth + 1) for item in value]
    if isinstance(value, Mapping):
        return {
            as_json(str(key), origin): as_json(item, origin, depth + 1)
            for key, item in value.items()
        }
    if hasattr(value, "item") and hasattr(value, "tolist"):  # NumPy, without importing it
        return as_json(value.tolist(), origin, depth + 1)
    if type(value).__name__ == "NAType":  # of pandas, without importing it
        return None
    if isinstance(value, bytes) or type(value).__module__.partition(".")[0] in OF_MEDIA:
        raise DataError(f"{origin}: a {type(value).__name__}, and {TEXT_ALONE}; remove the column")
    raise DataError(
        f"{origin}: a {type(value).__name__} cannot be carried as JSON; store it as text or "
        "numbers, or remove the column"
    )


def shown(value: Any) -> str:
    return cut(repr(value), 80)
