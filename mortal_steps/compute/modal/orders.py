"""What travels between a flow and a container: an order there, its outcome back.

Both travel as pickles, and an outcome waits on Modal until somebody takes it. Whoever takes it may
be newer than what sent it: fields that it does not know have their defaults.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from mortal_steps.compute.base import Role
from mortal_steps.compute.modal.cargo import Cargo
from mortal_steps.compute.modal.release import Release
from mortal_steps.config import RunConfig
from mortal_steps.errors import MortalError
from mortal_steps.types import FileRef


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """What the workers of a run are constructed with; a record in the run directory."""

    config: RunConfig
    fingerprint: str
    """The run's, as run.json has it."""
    dataset_fingerprint: str
    num_steps: int
    """Train steps of the whole run."""
    model_folder: str | None
    """Where on the Volume the files of the local folder `model.name_or_path` are, if it is one."""
    project_sha256: str | None
    """Of the files in `PROJECT`; None: workers need none."""
    reward_models: Mapping[str, str] = field(default_factory=dict)
    """Where on the Volume the files of each local folder of a reward model are that scores in a
    container."""

    @property
    def folders(self) -> dict[str, str]:
        """Every local model folder, and where on the Volume its files are."""
        model = {self.config.model.name_or_path: self.model_folder} if self.model_folder else {}
        return {**model, **self.reward_models}


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
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
    files: Cargo = field(default_factory=dict, repr=False)
    """Records that the payload refers to and that the Volume may lack."""
    room: int = 0
    """Bytes of records that the outcome may bring."""
    after: str = ""
    """Modal's id of the container that answered the worker's last call, if the asker knows it."""


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
class Outcome:
    """What came of an order. What Modal itself raises is then always infrastructure."""

    value: Any = None
    error: MortalError | None = None
    times: ContainerTimes | None = None
    files: Cargo = field(default_factory=dict, repr=False)
    """Records that the value refers to."""
    on_volume: tuple[FileRef, ...] = ()
    """What the order brought, where it has been committed."""
    is_committed: bool = True
    """Whether the Volume holds what the value refers to."""
