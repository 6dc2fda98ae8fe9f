"""Compare one file or folder of a run directory with its digest, and the ids of its steps with each
other."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeVar

from mortal_steps.errors import CorruptFileError
from mortal_steps.policy import journal
from mortal_steps.policy.journal import JournalEntry
from mortal_steps.policy.on_disk.checkpoints import CheckpointState
from mortal_steps.policy.trainable import what_is_wrong
from mortal_steps.store import RunStore
from mortal_steps.types import FileRef, GeneratedShard, StepResult
from mortal_steps.types.identity import RunInfo

T = TypeVar("T")

Outcome = Literal["will be made again", "passed over", "cannot be recovered"]

AGAIN: Outcome = "will be made again"
PASSED_OVER: Outcome = "passed over"
LOST: Outcome = "cannot be recovered"


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """A file that was checked."""

    path: Path
    num_bytes: int
    damage: str | None = None
    """What is wrong with it; None if nothing is."""
    outcome: Outcome | None = None
    """What the damage means for the run."""

    @classmethod
    def of(cls, path: Path, damage: str | None, outcome: Outcome | None) -> Self:
        """Return what there is to say of a file, or of one that is not there."""
        return cls(
            path=path,
            num_bytes=path.stat().st_size if path.is_file() else 0,
            damage=damage,
            outcome=outcome if damage else None,
        )


class FileChecks:
    """Checks of what lies in a `RunStore`'s folder; `note` is called with the result of each."""

    def __init__(self, store: RunStore, note: Callable[[Checked], None]) -> None:
        self._store = store
        self._note = note
        self._referred = set[FileRef]()
        """What was checked already: a file of an epoch is one of all its steps."""

    def record(
        self, relative: str, kind: type[T], outcome: Outcome, optional: bool = False
    ) -> T | None:
        """Read a record; None if it is damaged or missing."""
        path = self._store.path(relative)
        try:
            found = self._store.find_record(relative, kind)
        except CorruptFileError as error:
            self.file(path, _without_path(error, path), outcome)
            return None
        if found is None:
            if not optional:
                self.file(path, "is missing", outcome)
            return None
        self.file(path)
        return found[1]

    def reference(
        self,
        ref: FileRef,
        outcome: Outcome,
        check: Callable[[RunStore, FileRef], None] = RunStore.check_record,
    ) -> None:
        if ref in self._referred:
            return
        self._referred.add(ref)
        path = self._store.path(ref.path)
        try:
            check(self._store, ref)
        except CorruptFileError as error:
            self.file(path, _without_path(error, path), outcome)
        else:
            self.file(path)

    def folder(self, relative: str, sha256: str | None, outcome: Outcome) -> bool:
        """Check every file of a committed folder; returns whether it is whole."""
        whole = True
        for path, damage in self._store.check_folder(relative, sha256):
            whole = whole and damage is None
            self.file(path, damage, outcome)
        return whole

    def file(self, path: Path, damage: str | None = None, outcome: Outcome | None = None) -> None:
        self._note(Checked.of(path, damage, outcome))


def check_turns(store: RunStore, ref: FileRef) -> None:
    """Raise `CorruptFileError` for a shard that is damaged, or has a completion whose tokens, turns
    and messages do not fit together."""
    for group in store.read_record(ref, GeneratedShard).groups:
        for completion in group.completions:
            wrong = what_is_wrong(completion)
            if wrong:
                path = store.path(ref.path)
                raise CorruptFileError(
                    f"{path} holds a completion of {group.problem.id} that {wrong}"
                )


def _without_path(error: CorruptFileError, path: Path) -> str:
    return str(error).removeprefix(f"{path} ")


# the chain of state ids

Ids = tuple[str | None, str]
"""The chained id of a state, if it is known, and the chained id of the batches that led to it."""

PARTS = (
    "is of other weights than the step before it left: the chain parts here, after a replay on "
    "other hardware or with other versions of the libraries"
)


def first_ids(info: RunInfo) -> Ids:
    parent, own = info.parent, info.fingerprint
    if parent is None:
        first = journal.first_state_id(own)
        return first, first
    return (
        journal.forked_state_id(parent.state_id, parent.fingerprint, own),
        journal.forked_state_id(parent.history_id, parent.fingerprint, own),
    )


def broken_link(
    before: Ids, entry: JournalEntry | None, result: StepResult, fingerprint: str
) -> str | None:
    """Return why a step does not follow from the one before it: other batches, or other weights."""
    state_id, history_id = before
    batch, trained = result.batch_sha256, result.weights_digest
    history = journal.next_state_id(history_id, batch, fingerprint)
    if history != result.history_id or (entry and entry.batch_sha256 != batch):
        return "does not follow from the step before it"
    if state_id is None:
        return None
    follows = journal.next_state_id(state_id, batch, fingerprint, trained)
    return None if follows == result.state_id else PARTS


def other_state(saved: CheckpointState, result: StepResult) -> str | None:
    """Return why a checkpoint does not follow from a step: it holds another state than the step
    left."""
    if saved.state_id != result.state_id:
        return f"is of another state than step {result.step} led to"
    if saved.digests["weights"] != result.weights_digest:
        return f"holds other weights than step {result.step} left, whose state it says it is"
    return None
