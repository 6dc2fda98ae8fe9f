"""Rows as a trainer takes them, on their way from the check of a run into its directory."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mortal_steps.store import FOLDER_MANIFEST, RunStore
from mortal_steps.store.files import link_file
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import FileRef
from mortal_steps.types.identity import CountedFrom

PREPARED = "data/prepared"
REFERENCE = "data/reference"
"""What a reference model says of them."""
ORDERS = "orders"
"""Folder with the order of each epoch."""
TRAIN_FILE = "train.arrow"


def same_rows(one: Path, other: Path) -> bool:
    """Whether two folders of prepared rows hold the same ones to train on, in the same order."""
    if one == other:
        return True
    import pyarrow  # takes a while

    tables = []
    for folder in (one, other):
        with pyarrow.memory_map(str(folder / TRAIN_FILE)) as file:
            tables.append(pyarrow.ipc.open_stream(file).read_all())
    return bool(tables[0].equals(tables[1]))


@dataclass(frozen=True, kw_only=True, slots=True)
class Preparation:
    """What came of the rows of a dataset."""

    num_rows: int
    """Rows that are trained on."""
    first: Mapping[str, str]
    """The parts of the first of them, as the model reads them with special tokens: `row` and what
    is `learned` of it, or the `chosen` and the `rejected` one."""
    longest: int
    """Tokens of the longest part."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """Prepared rows in a temporary folder, or in the run that a fork is made of."""

    folder: Path
    num_rows: int
    """Rows that are trained on."""
    longest: int | None = None
    """Tokens of the longest of them. None for those of another run."""
    scratch: Scratch | None = None
    """The temporary folder, which is there for as long as this."""
    counted_from: CountedFrom = field(default_factory=CountedFrom)
    """Where the run that learns from them begins to count epochs."""

    def keep(self, store: RunStore) -> FileRef:
        """Commit them as a folder of the run."""
        with store.committing_folder(PREPARED) as folder:
            for path in self.folder.iterdir():
                if path.name != FOLDER_MANIFEST:
                    link_file(path, folder / path.name)
        return FileRef(path=PREPARED, sha256=store.folder_digest(PREPARED))
