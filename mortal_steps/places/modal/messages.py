"""What travels between a flow and a container: a request there, its result back.

Both travel as pickles, and a result waits on Modal until somebody takes it.

Small records travel inside them, as bytes beside the reference: an upload before each call and a
download after it would take far longer. A flow sends what a request refers to and the Volume lacks;
a container writes it under the same name and digest before it begins, and sends back what its
answer refers to. Workers verify the digest of whatever they read, wherever it came from.

A request carries the number of the lease that its flow has, a fencing token as described in
https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html

    RUN/leases/3    on the Volume, from the run's third lease; says who has it

Whoever takes the lease (volume_lease.py) puts its number there before anything else, and every call
begins by looking at the Volume anew. So a flow that slept while another machine took over can still
ask, but is refused. No number is ever given to two, so no file is ever written over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from mortal_steps.compute.base import Role
from mortal_steps.data.prepared import PREPARED
from mortal_steps.errors import CorruptFileError, LeaseLostError, MortalError
from mortal_steps.places.modal.release import Release
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.store import RunStore
from mortal_steps.store.files import write_atomically
from mortal_steps.types import FileRef

LEASES = "leases"
"""Folder of a run directory on the Volume with the numbers of its leases."""
ROOM = 1 << 20
"""Bytes of records in one request or result. What is larger goes by the Volume, where containers
find it without passing through the flow's machine."""
Records = Mapping[FileRef, bytes]


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the workers of a run are constructed with; a record in the run directory."""

    config: RunConfig
    fingerprint: str
    """The run's, as run.json has it."""
    dataset_fingerprint: str
    num_steps: int
    """Train steps of the whole run."""
    project_sha256: str | None
    """Of the files in `PROJECT`; None: workers need none."""
    folders: Mapping[str, str] = field(default_factory=dict)
    """Where on the Volume the files are of each local folder with a model: the one that is trained,
    its teacher, and those that score in a container."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallRequest:
    """One call as it travels to a container."""

    release: Release
    """Code of whoever asks."""
    volume: str
    """Name of the Volume that the run is on."""
    lease: int
    """Number of the run's lease that whoever asks holds."""
    settings: FileRef
    """Record of `Settings`."""
    role: Role
    """Of the worker that is asked."""
    method: str
    payload: Mapping[str, Any]
    label: str
    """What the call is, such as `train_step/12/0`; for the log."""
    files: Records = field(default_factory=dict, repr=False)
    """Records that the payload refers to and that the Volume may lack."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ContainerTimes:
    """What a container did until a call's end since the end of the one before, in seconds."""

    container: str
    """Modal's id of it."""
    startup_s: float
    """Until it was ready, where the call is its first."""
    idle_s: float
    """Waiting for the call."""
    busy_s: float
    """In the call."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CallResult:
    """What came of a request. What Modal itself raises is then always infrastructure."""

    value: Any = None
    error: MortalError | None = None
    times: ContainerTimes | None = None
    files: Records = field(default_factory=dict, repr=False)
    """Records that the value refers to, as many as there is room for; the Volume has all."""


def file_refs(value: Any) -> Iterator[FileRef]:
    """Yield the records that a value refers to. Prepared rows are none: their folder is on the
    Volume since the run began there."""
    if isinstance(value, FileRef):
        if value.path != PREPARED:
            yield value
    elif is_dataclass(value):
        yield from file_refs([getattr(value, field.name) for field in fields(value)])
    elif isinstance(value, Mapping):
        yield from file_refs(value.values())
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            yield from file_refs(item)


def load_records(store: RunStore, refs: Iterable[FileRef]) -> dict[FileRef, bytes]:
    """Load whole records that are here, in order, up to `ROOM` bytes."""
    loaded: dict[FileRef, bytes] = {}
    room = ROOM
    for ref in refs:
        path = store.path(ref.path)
        if ref in loaded or not path.exists() or path.stat().st_size > room:
            continue
        if has_record(store, ref):
            loaded[ref] = path.read_bytes()
            room -= len(loaded[ref])
    return loaded


def write_records(store: RunStore, records: Records) -> None:
    """Write the missing records; raises `CorruptFileError` for a wrong digest, `StoreError`."""
    for ref, content in records.items():
        if not has_record(store, ref):
            write_atomically(store.path(ref.path), content)
            store.check_record(ref)


def has_record(store: RunStore, ref: FileRef) -> bool:
    try:
        store.check_record(ref)
    except CorruptFileError:
        return False
    return True


def check_lease(store: RunStore, number: int) -> None:
    """Raise `LeaseLostError` if the run has had a lease since the one of this number."""
    newest = max((number for number, _ in store.numbered(LEASES)), default=0)
    if number < newest:
        holder = store.path(f"{LEASES}/{newest}").read_text(encoding="utf-8").strip()
        raise LeaseLostError(
            f"run {store.root.name} was taken over by {holder}, which holds its lease {newest} on "
            f"Modal; this request has lease {number}. The run continues there"
        )
