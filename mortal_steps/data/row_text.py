"""Rows as JSON text: on disk, and under a digest."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from mortal_steps.types import Prompt

Row = tuple[str, Prompt, Mapping[str, Any]]
"""Id, prompt and columns."""

encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Compact, keys in their order."""
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


def encode_each(encode: Callable[[Any], str], values: Sequence[Any]) -> list[str]:
    """What `encode` makes of each value, by one call for all of them."""
    if not values:
        return []
    marked = [part for value in values for part in (value, _MARK)]
    return encode(marked)[1:-1].removesuffix(_BETWEEN[:-1]).split(_BETWEEN)
