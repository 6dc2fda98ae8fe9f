"""Who a run is: what never changes about it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import StringConstraints

from mortal_steps.types.references import FileRef


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFile:
    """A file of the local model folder that a run began with."""

    sha256: str
    num_bytes: int
    changed_ns: int
    """When the file system last changed anything about it; with size and time as they were, it
    need not be read again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Parent:
    """The run that a fork goes on from, as it was when they parted."""

    run_id: str
    uid: str
    step: int
    """Train steps done; the fork's first checkpoint."""
    state_id: str
    """Chained id of the parent's state there."""
    fingerprint: str
    """The parent's."""
    history_id: str
    """Chained id of the batches that led there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CountedFrom:
    """Where a run that learns from rows begins to count its epochs."""

    step: int = 0
    """A step that begins an epoch. It is not 0 in a fork with other rows than its parent's, or
    with steps of another size."""
    epoch: int = 0
    """The number of this epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunInfo:
    """What never changes about a run. Paths of other files are made from names with a pattern."""

    run_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    uid: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    """Random name of this run directory; tells two runs of one id apart."""
    fingerprint: str
    """Digest of what decides the run's numbers, as the code that began the run understood it."""
    dataset_fingerprint: str
    working_dir: Annotated[str, StringConstraints(pattern=r"^/.*$")]
    """Where relative paths of the configuration start."""
    num_steps: int
    """Train steps of the whole run."""
    num_problems: int
    num_eval_problems: int
    config_sha256: str
    """Digest of config.toml."""
    train_problems: FileRef
    """Problem file, or record of `list[Problem]`."""
    eval_problems: FileRef
    """Record of `list[Problem]`; an empty list without held-out problems."""
    prepared_rows: FileRef | None = None
    """Folder of the rows as TRL prepared them, where the run learns from rows."""
    num_prepared: int | None = None
    """How many of these are trained on."""
    counted_from: CountedFrom = field(default_factory=CountedFrom)
    """Where it begins to count epochs of prepared rows."""
    created_at: float
    """Seconds since the epoch."""
    model_files: Mapping[str, ModelFile] = field(default_factory=dict)
    """What the folder `model.name_or_path` held, by file name; empty without such a folder."""
    teacher_files: Mapping[str, ModelFile] = field(default_factory=dict)
    """The same of the teacher that it learns from, if it has one."""
    parent: Parent | None = None
    """What the run is a fork of, if it is one."""
    host: str | None = None
    """Name of the machine that the run began on, where that was noted."""
    rounding: Mapping[str, str] | None = None
    """Environment variables that decide how its workers on this machine round
    (mortal_steps/system/rounding.py); None where that was not noted: as they are."""

    eval_sets: Mapping[str, int] = field(default_factory=dict)
    """Number of problems of each set of `data.eval_sets`, in the order of `eval_problems`."""
    libraries: Mapping[str, str] | None = None
    """Versions of the libraries on the machine that it began on
    (mortal_steps/system/libraries.py); None where that was not noted."""

    @property
    def first_step(self) -> int:
        """Train steps done when the run began: a fork's are its parent's."""
        return self.parent.step if self.parent else 0
