"""Rows as a trainer takes them, on their way from the check of a run into its directory."""

from collections.abc import Mapping
from dataclasses import dataclass

from mortal_steps.store import RunStore
from mortal_steps.store.files import link_file
from mortal_steps.system.scratch import Scratch
from mortal_steps.types import FileRef

PREPARED = "data/prepared"
REFERENCE = "data/reference"
"""What a reference model says of them."""


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
    """Prepared rows in a temporary folder."""

    scratch: Scratch
    num_rows: int
    """Rows that are trained on."""

    def keep(self, store: RunStore) -> FileRef:
        """Commit them as a folder of the run."""
        with store.committing_folder(PREPARED) as folder:
            for path in self.scratch.path.iterdir():
                link_file(path, folder / path.name)
        return FileRef(path=PREPARED, sha256=store.folder_digest(PREPARED))
