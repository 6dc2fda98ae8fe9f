"""What pydantic says, in words without its own terms."""

import re
from collections.abc import Mapping
from typing import Any

from mortal_steps.config.section import NAME

PLAIN_WORDS = (
    (re.compile(r", (unable to parse|got a number with) .*"), ""),
    (re.compile(r"^Input should be"), "must be"),
    (re.compile(r"a valid dictionary( or instance of \w+)?"), "a table of keys"),
    (re.compile(r"a valid integer"), "a whole number"),
    (re.compile(r"a valid "), "a "),
    (re.compile(r"^Field required"), "is required"),
    (
        re.compile(rf"^String should match pattern '{re.escape(NAME)}'"),
        "must consist of letters, digits, '.', '_' and '-', and start with a letter or a digit",
    ),
)
"""pydantic's phrases -> the same without its own terms."""


def in_plain_words(reason: str) -> str:
    """pydantic's complaint about a value, without its own terms: `must be a whole number`."""
    plain = reason.removeprefix("Value error, ")
    for pattern, words in PLAIN_WORDS:
        plain = pattern.sub(words, plain)
    return plain


def complaint(detail: Mapping[str, Any], table: str = "") -> str:
    """Return one of pydantic's errors about a table, such as `rollout.top_p = 2: must be less than
    or equal to 1`."""
    key = ".".join(filter(None, [table, *map(str, detail["loc"])]))
    given = f" = {detail['input']!r}" if detail["loc"] and detail["type"] != "missing" else ""
    return f"{key}{given}: {in_plain_words(detail['msg'])}"
