"""Rows as JSON text, for files and for digests."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from json.encoder import encode_basestring_ascii as encode_text
from typing import Any

from mortal_steps.types import Prompt

Row = tuple[str, Prompt, Mapping[str, Any]]
"""Id, prompt and columns."""

encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Compact JSON with the keys in their given order."""
_encode_sorted = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode
_MARK = secrets.token_hex(16)
_BETWEEN = f',"{_MARK}",'
"""Stands between values that are encoded together, and in none of them."""


def digest_rows(rows: Iterable[Row]) -> str:
    """sha256 over all rows, keys in alphabetical order; hexadecimal."""
    digest = hashlib.sha256()
    remaining = iter(rows)
    while some := [(name, prompt, dict(cols)) for name, prompt, cols in islice(remaining, 1000)]:
        for line in encode_each(_encode_sorted, some):
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()


def digest_encoded(groups: Iterable[tuple[Any, ...]]) -> str:
    """The same of rows in JSON: of each group its ids, its prompts, which of these are JSON (of
    chats), and its columns, each row's in alphabetical order."""
    digest = hashlib.sha256()
    for ids, prompts, chats, columns in groups:
        said = [
            text if chat else encode_text(text) for text, chat in zip(prompts, chats, strict=True)
        ]
        _encode_again(said, [row for row, chat in enumerate(chats) if chat])
        _encode_again(columns, [row for row, text in enumerate(columns) if not _is_flat(text)])
        for problem_id, prompt, text in zip(ids, said, columns, strict=True):
            digest.update(f"[{encode_text(problem_id)},{prompt},{text}]\n".encode())
    return digest.hexdigest()


def _is_flat(text: str) -> bool:
    """Whether `_encode_sorted` writes an object as it stands there, if its names are in order:
    nothing in it has names of its own, or is escaped by one encoder alone."""
    return text.isascii() and text.count("{") == 1 and "\x7f" not in text


def _encode_again(texts: list[str], rows: Sequence[int]) -> None:
    """Let the values in these rows be what `_encode_sorted` makes of them."""
    values = json.loads(f"[{','.join(texts[row] for row in rows)}]")
    for row, text in zip(rows, encode_each(_encode_sorted, values), strict=True):
        texts[row] = text


def encode_each(encode: Callable[[Any], str], values: Sequence[Any]) -> list[str]:
    """The result of `encode` for each value, computed in one call."""
    if not values:
        return []
    marked = [part for value in values for part in (value, _MARK)]
    return encode(marked)[1:-1].removesuffix(_BETWEEN[:-1]).split(_BETWEEN)
