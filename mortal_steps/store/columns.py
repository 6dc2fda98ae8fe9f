"""Columns in a Parquet file: written alike every time, and given back exactly.

What belongs to the whole file is its header, a JSON value in the file's metadata. Numbers in lists,
which are nearly all there is, are split into their first, second, ... bytes and compressed with
zstd: a float64 that came from a float32 is as small as the float32.
"""

import dataclasses
import json
from array import array
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from mortal_steps.errors import CorruptFileError
from mortal_steps.store.seal import SEAL_KEY, UNSEALED

HEADER_KEY = "mortal"
"""The key of the header in the file's metadata."""
LETTERS = {pyarrow.int32(): "i", pyarrow.float64(): "d"}
"""Type codes of the numbers in lists, in the module `array`."""
# Elements that can be null would take a byte per number to write and to read.
INTEGERS = pyarrow.list_(pyarrow.field("element", pyarrow.int32(), nullable=False))
FLOATS = pyarrow.list_(pyarrow.field("element", pyarrow.float64(), nullable=False))


def write_columns(header: Any, table: pyarrow.Table) -> bytearray:
    """Return a file that is not sealed yet."""
    lists = [field.name for field in table.schema if pyarrow.types.is_list(field.type)]
    file = pyarrow.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        store_schema=False,
        write_statistics=False,
        use_dictionary=False,  # zstd finds what is repeated, in less time
        column_encoding={f"{name}.list.element": "BYTE_STREAM_SPLIT" for name in lists} or None,
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata({HEADER_KEY: dump_json(header)})
        writer.add_key_value_metadata({SEAL_KEY: UNSEALED})
    return bytearray(file.getvalue())


def read_columns(path: Path, content: bytes) -> tuple[Any, pyarrow.Table]:
    """Return header and columns of a checked file; raises `CorruptFileError`."""
    try:
        file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
        header = json.loads(file.metadata.metadata[HEADER_KEY.encode()])
        return header, file.read(use_threads=False).combine_chunks()
    except (pyarrow.ArrowException, OSError) as error:
        raise CorruptFileError(
            f"{path} cannot be read by pyarrow {pyarrow.__version__}: {error}"
        ) from None


def column(values: Sequence[Any], kind: pyarrow.DataType | None) -> pyarrow.Array:
    """Return a column of this type, or of JSON; null for None."""
    if kind is not None:
        return pyarrow.array(values, kind)
    texts = [None if value is None else dump_json(value) for value in values]
    return pyarrow.array(texts, pyarrow.string())


def plain_column(values: Sequence[Any]) -> pyarrow.Array | None:
    """Return a column of the values' own type, if they have one that Parquet has."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) != 1 or not kinds <= {bool, int, float, str}:
        return None
    try:
        return pyarrow.array(values)
    except (OverflowError, UnicodeEncodeError, pyarrow.ArrowException):
        return None  # an integer beyond 64 bits, half of a surrogate pair


def values_of(values: pyarrow.ChunkedArray) -> Sequence[Any]:
    """Return the values of a column; lists as arrays, which take a third of the memory of lists and
    hardly any time. An array never equals a list."""
    if not pyarrow.types.is_list(values.type):
        return list(values.to_pylist())
    lists = values.combine_chunks()
    letter, numbers = LETTERS[values.type.value_type], lists.values.to_numpy()
    ends = lists.offsets.to_pylist()
    spans = zip(ends[:-1], ends[1:], lists.is_valid().to_pylist(), strict=True)
    return [
        array(letter, numbers[start:stop].tobytes()) if there else None
        for start, stop, there in spans
    ]


def dump_json(value: Any) -> str:
    """Return JSON that reads back the same: NaN and halves of surrogates, too."""
    text = json.dumps(value, ensure_ascii=False, default=_as_plain)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, default=_as_plain)
    return text


def _as_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is no value of JSON")
