"""Records that travel inside an order or its outcome: bytes beside the reference to them.

A record on the Volume has to be put there and committed by one side, and reloaded and got by the
other. Where it is small, that takes far longer than the record does by itself. So a flow sends what
an order refers to, as far as the Volume lacks it, with the order, and a container writes it under
the same name and digest before it begins. What it has made goes back in the same way.

Workers verify the digest of whatever they read, wherever it came from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from mortal_steps.errors import CorruptFileError
from mortal_steps.store import RunStore
from mortal_steps.store.files import write_atomically
from mortal_steps.types import FileRef

ROOM = 1 << 20
"""Bytes of records in one order; the shards of a step share it. What is larger goes by the Volume,
where containers find it without passing through the flow's machine."""
TRAVELS_WHOLE = {"generate"}
"""Methods whose answer refers to everything that they write. Where all of that fits into the
outcome nothing has to be committed: the flow has it, and a container that is asked again while
nobody has it samples the same."""

Cargo = Mapping[FileRef, bytes]


def file_refs(value: Any) -> Iterator[FileRef]:
    """Every `FileRef` in a request or an answer."""
    if isinstance(value, FileRef):
        yield value
    elif is_dataclass(value):
        yield from file_refs([getattr(value, field.name) for field in fields(value)])
    elif isinstance(value, Mapping):
        yield from file_refs(value.values())
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            yield from file_refs(item)


def load(store: RunStore, refs: Iterable[FileRef], room: int) -> dict[FileRef, bytes]:
    """Those of the records that are here, whole, as many as there is room for, the first first."""
    cargo: dict[FileRef, bytes] = {}
    for ref in refs:
        path = store.path(ref.path)
        if ref in cargo or not path.exists() or path.stat().st_size > room or not has(store, ref):
            continue
        cargo[ref] = path.read_bytes()
        room -= len(cargo[ref])
    return cargo


def unload(store: RunStore, cargo: Cargo) -> None:
    """Write the records that are not here already; raises `CorruptFileError` for one that is not
    what it is said to be, and `StoreError`."""
    for ref, content in cargo.items():
        if not has(store, ref):
            write_atomically(store.path(ref.path), content)
            store.check_record(ref)


def answered_with(
    store: RunStore, answer: Any, known: Collection[FileRef], room: int
) -> dict[FileRef, bytes] | None:
    """The records that an answer refers to, without those `known` to whoever asked; None where
    there is no room for all of them."""
    refs = [ref for ref in file_refs(answer) if ref not in known]
    cargo = load(store, refs, room)
    return cargo if all(ref in cargo for ref in refs) else None


def has(store: RunStore, ref: FileRef) -> bool:
    """Whether the record is here, whole."""
    try:
        store.check_record(ref)
    except CorruptFileError:
        return False
    return True
