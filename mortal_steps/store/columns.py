"""Columns in a sealed Parquet file: written alike every time, and given back exactly.

What belongs to the whole record is its header, a JSON value in the file's metadata. Numbers in
lists, which are nearly all there is, are split into their first, second, ... bytes and compressed
with zstd. That makes a float64 that came from a float32 as small as the float32.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import struct
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from mortal_steps.errors import CorruptFileError
from mortal_steps.store.arrays import array_of
from mortal_steps.store.formats import FORMAT
from mortal_steps.store.seal import SEAL_KEY, Seal, close, open_seal

HEADER_KEY = "mortal.header"

# What can be null costs a byte per number while it is written and read.
TOKEN_IDS = pyarrow.list_(pyarrow.field("element", pyarrow.int32(), nullable=False))
LOGPROBS = pyarrow.list_(pyarrow.field("element", pyarrow.float64(), nullable=False))
"""A list in every row. Older code declared that it can be null, but it never was."""

_NUMBERS = {pyarrow.int32(): "i", pyarrow.int64(): "q", pyarrow.float64(): "d"}
"""Type codes of numbers in the module `struct`."""


def encode(kind: str, header: Any, columns: Mapping[str, pyarrow.Array]) -> tuple[str, bytearray]:
    """Digest of the content, and the sealed file. All columns have the same length."""
    said = dump_json(header)
    digest = content_digest(kind, said, columns)
    always = (TOKEN_IDS, LOGPROBS)
    fields = [pyarrow.field(n, c.type, nullable=c.type not in always) for n, c in columns.items()]
    table = pyarrow.Table.from_arrays(list(columns.values()), schema=pyarrow.schema(fields))
    token_columns = [name for name in columns if _is_list_of_numbers(columns[name].type)]
    file = pyarrow.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(
        file,
        table.schema,
        compression="zstd",
        store_schema=False,
        write_statistics=False,
        use_dictionary=False,  # zstd finds what is repeated, in less time
        column_encoding=dict.fromkeys(map(_leaf, token_columns), "BYTE_STREAM_SPLIT") or None,
    ) as writer:
        writer.write_table(table, row_group_size=max(1, table.num_rows))
        writer.add_key_value_metadata({HEADER_KEY: said})
        seal = Seal(format=FORMAT, kind=kind, sha256=digest)
        writer.add_key_value_metadata({SEAL_KEY: open_seal(seal)})
    return digest, close(bytearray(file.getvalue()))


class Columns(Mapping[str, pyarrow.Array]):
    """The columns of a file whose seal was checked, each decoded when it is asked for: not all of
    them are in memory at once.

    Raises `CorruptFileError` for what this version of pyarrow cannot read.
    """

    def __init__(self, path: Path, content: bytes) -> None:
        self._path = path
        with self._reading():
            self._file = pyarrow.parquet.ParquetFile(pyarrow.BufferReader(content))
            self._names = self._file.schema_arrow.names
            self.header: Any = json.loads(self._file.metadata.metadata[HEADER_KEY.encode()])

    def __getitem__(self, name: str) -> pyarrow.Array:
        if name not in self._names:
            raise KeyError(name)
        with self._reading():
            column = self._file.read(columns=[name], use_threads=False).column(name)
        # `combine_chunks` copies a single chunk, too.
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except (pyarrow.ArrowException, OSError) as error:
            raise CorruptFileError(
                f"{self._path} cannot be read by pyarrow {pyarrow.__version__}: {error}"
            ) from None


def content_digest(kind: str, header: str, columns: Mapping[str, pyarrow.Array]) -> str:
    """sha256 of the columns' content, independent of how a file encodes it."""
    hashed = hashlib.sha256(dump_json([kind, header, list(columns)]).encode())
    for column in columns.values():
        _hash(hashed, column)
    return hashed.hexdigest()


def _hash(hashed: Any, column: pyarrow.Array) -> None:
    """Type, length and nulls of a column, then its values."""
    nulls = column.is_null().to_pylist() if column.null_count else []
    hashed.update(struct.pack("<qq", len(column), column.null_count) + bytes(nulls))
    kind = column.type
    if pyarrow.types.is_list(kind):
        hashed.update(b"list")
        lengths = [length or 0 for length in column.value_lengths().to_pylist()]
        hashed.update(struct.pack(f"<{len(lengths)}i", *lengths))
        _hash(hashed, column.flatten())
    elif pyarrow.types.is_struct(kind):
        hashed.update(f"struct {[field.name for field in kind]}".encode())
        for child in column.flatten():
            _hash(hashed, child)
    elif kind in _NUMBERS:
        hashed.update(str(kind).encode())
        hashed.update(_bytes_of(column.fill_null(0) if column.null_count else column))
    elif kind == pyarrow.string() and not column.null_count and len(column):
        lengths, text = _text_of(column)
        hashed.update(str(kind).encode())
        hashed.update(struct.pack(f"<{len(lengths)}q", *lengths))
        hashed.update(text)
    else:
        hashed.update(str(kind).encode())
        values = [b"" if value is None else str(value).encode() for value in column.to_pylist()]
        hashed.update(struct.pack(f"<{len(values)}q", *map(len, values)))
        hashed.update(b"".join(values))


# values of Python and columns


def lists_column(lists: Sequence[Sequence[Any]], kind: pyarrow.ListType) -> pyarrow.Array:
    """A column of `TOKEN_IDS` or `LOGPROBS`; raises `struct.error` for what is no such number."""
    letter = _NUMBERS[kind.value_type]
    width = kind.value_type.bit_width // 8
    ends = [0, *itertools.accumulate(map(len, lists))]
    values = bytearray(ends[-1] * width)
    for start, part in zip(ends, lists, strict=False):  # there is one more end
        struct.pack_into(f"{len(part)}{letter}", values, start * width, *part)
    flat = pyarrow.Array.from_buffers(kind.value_type, ends[-1], [None, pyarrow.py_buffer(values)])
    return pyarrow.ListArray.from_arrays(array_of(ends, pyarrow.int32()), flat, type=kind)


def lists_of(column: pyarrow.Array, rows: Iterable[int] | None = None) -> list[array[Any]]:
    """What `lists_column` was made of, in all rows or in these; as arrays, which take a third of
    the memory of lists and hardly any time. An array never equals a list."""
    letter, values = _NUMBERS[column.type.value_type], _bytes_of(column.values)
    width = struct.calcsize(letter)
    ends = [end * width for end in column.offsets.to_pylist()]
    lists = []
    for row in range(len(column)) if rows is None else rows:
        lists.append(array(letter))
        lists[-1].frombytes(values[ends[row] : ends[row + 1]])  # the one copy that is made
    return lists


def dump_json(value: Any) -> str:
    """JSON from which exactly the same value is read: NaN and infinities too, and halves of
    surrogate pairs as escapes."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def json_column(values: Sequence[Any]) -> pyarrow.Array:
    """Values of any shape as JSON; null for None."""
    texts = [None if value is None else dump_json(value) for value in values]
    return array_of(texts, pyarrow.string())


def json_values(column: pyarrow.Array) -> list[Any]:
    """The values from which `json_column` was made."""
    return [None if text is None else json.loads(text) for text in column.to_pylist()]


def plain_column(values: Sequence[Any]) -> tuple[pyarrow.Array, str]:
    """Values as a column of their own type where they have one, else as JSON; and which it is."""
    types = {type(value) for value in values if value is not None}
    for kind, arrow_type in (
        (bool, pyarrow.bool_()),
        (int, pyarrow.int64()),
        (float, pyarrow.float64()),
        (str, pyarrow.string()),
    ):
        if types == {kind}:
            try:
                return array_of(values, arrow_type), kind.__name__
            except (OverflowError, UnicodeEncodeError, pyarrow.ArrowException):
                break  # an integer beyond 64 bits, half of a surrogate pair
    return json_column(values), "json"


def plain_values(column: pyarrow.Array, kind: str) -> list[Any]:
    """The values from which `plain_column` was made."""
    return json_values(column) if kind == "json" else column.to_pylist()


def _text_of(column: pyarrow.Array) -> tuple[list[int], memoryview]:
    """Bytes of each string in a column without nulls, and all strings in UTF-8."""
    _, offsets, text = column.buffers()
    ends = struct.unpack_from(f"{len(column) + 1}i", offsets, column.offset * 4)
    lengths = [end - start for start, end in itertools.pairwise(ends)]
    return lengths, memoryview(text or b"")[ends[0] : ends[-1]]


def _is_list_of_numbers(kind: pyarrow.DataType) -> bool:
    return pyarrow.types.is_list(kind) and kind.value_type in _NUMBERS


def _leaf(name: str) -> str:
    """What Parquet calls the values of a list."""
    return f"{name}.list.element"


def _bytes_of(numbers: pyarrow.Array) -> memoryview:
    """The values of a column without nulls, little-endian."""
    width = numbers.type.bit_width // 8
    values = memoryview(numbers.buffers()[1] or b"")
    return values[numbers.offset * width : (numbers.offset + len(numbers)) * width]
