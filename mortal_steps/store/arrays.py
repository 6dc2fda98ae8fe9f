"""Arrow arrays of plain values, made without pandas.

`pyarrow.array` imports pandas, wherever it is installed, to see whether it was given a Series. That
takes 0.2 s of a core at the first array of a process.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import Any

import pyarrow

_LETTERS = {pyarrow.int32(): "i", pyarrow.int64(): "q", pyarrow.float64(): "d"}
"""Type codes of numbers in the module `array`."""


def array_of(values: Sequence[Any], kind: pyarrow.DataType) -> pyarrow.Array:
    """What `pyarrow.array(values, kind)` is, for strings, booleans and numbers; None is null.

    Raises `OverflowError` for an integer that is too large and `UnicodeEncodeError` for half of a
    surrogate pair.
    """
    present = [value is not None for value in values]
    nulls = len(values) - sum(present)
    if kind == pyarrow.string():
        texts = [b"" if value is None else value.encode() for value in values]
        content = [array("i", [0, *itertools.accumulate(map(len, texts))]), b"".join(texts)]
    elif kind == pyarrow.bool_():
        content = [_bits([value is True for value in values])]
    else:
        content = [array(_LETTERS[kind], [0 if value is None else value for value in values])]
    validity = pyarrow.py_buffer(_bits(present)) if nulls else None
    buffers = [validity, *map(pyarrow.py_buffer, content)]
    return pyarrow.Array.from_buffers(kind, len(values), buffers, null_count=nulls)


def _bits(flags: Sequence[bool]) -> bytes:
    """One bit per value, the first value in the lowest bit."""
    text = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(text or "0", 2).to_bytes((len(flags) + 7) // 8, "little")
