"""What a stage of a recipe is: what it needs, who it is, and what it produces.

    RunStage    a run: its product is the run's final model
    MadeStage   anything else that is made once, of which a folder is kept (products.py)
    GateStage   a decision

A stage is known by its *identity*, a digest of everything that decides what it produces: its own
parts, and the digests of the outputs of other stages that it takes. So a stage whose parents are
computed again, to the same bits, is complete already.
"""

import hashlib
import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from mortal_steps.errors import ConfigError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.recipes.references import Reference, references_in, replaced
from mortal_steps.registry.registry import Decision
from mortal_steps.runs.argument import RECIPES

OutputKind = Literal["model", "dataset", "folder", "run"]
"""`model`: a folder that engines load; `dataset`: a file of rows; `folder`: whatever a function has
written; `run`: a run directory."""
SHORT = 10
"""Digits of an identity that names of folders have."""
Say = Callable[[str], None]
"""Is told of progress, a line at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Output:
    """What a stage has produced, as other stages take it."""

    kind: OutputKind
    path: str
    """Relative to the folder of the runs."""
    sha256: str
    """Digest of the file, or of the manifest of the folder, which lists the digest of each file; of
    a run, its uid."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Input:
    """An output that a stage has taken."""

    key: str
    """Where the stage names it, such as `model.name_or_path`."""
    stage: str
    made_by: str
    """Id of the job that produced it."""
    output: Output


@dataclass(frozen=True, kw_only=True, slots=True)
class Product:
    """What a stage has produced."""

    recipe: str
    stage: str
    job_id: str
    outputs: Mapping[str, Output]
    """By name; that of `stage:NAME` is the empty one."""
    inputs: tuple[Input, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
    headline: str = ""
    """What was reached, in a line."""
    made_at: float = 0.0
    """Seconds since the epoch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A stage, with what it takes: all that has to be known to begin it."""

    recipe: str
    stage: str
    identity: str
    """Hexadecimal digest of what decides what is produced."""
    inputs: tuple[Input, ...]
    runs_dir: Path

    @property
    def id(self) -> str:
        """Name of its folder and, if it is a run, the run's id."""
        return f"{self.recipe}-{self.stage}-{self.identity[:SHORT]}"

    @property
    def folder(self) -> Path:
        """Where a stage that is no run keeps what it makes."""
        return self.runs_dir / RECIPES / self.recipe / f"{self.stage}-{self.identity[:SHORT]}"

    def path(self, reference: Reference) -> str:
        """Return what takes the place of a reference: the path of the output."""
        found = next(each for each in self.inputs if each.key == reference.key)
        return str(self.runs_dir / found.output.path)

    def values(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return a stage's table with paths in the place of its references."""
        found: dict[str, Any] = replaced(values, self.path)
        return found


class StandIns(ABC):
    """What a stage is checked with before the stages exist that it takes things from."""

    @abstractmethod
    def path(self, reference: Reference) -> str | None:
        """Return the path of an output that exists; None as long as it does not."""

    @abstractmethod
    def model(self, reference: Reference) -> Mapping[str, Any] | None:
        """Return the table `[model]` of a model of the same shape and tokenizer: that with which
        the stage, or the one before it, begins. None: there is none."""

    @abstractmethod
    def run(self, reference: Reference) -> "RunStage | None":
        """Return the stage, if it is a run."""

    @abstractmethod
    def rows(self, reference: Reference) -> Sequence[Mapping[str, Any]] | None:
        """Return some rows with the columns that the dataset will have; None: nobody knows."""


class Stage(ABC):
    """A stage of a recipe. A kind of stage is a subclass, an entry of `STAGES` (table.py)."""

    outputs: ClassVar[Mapping[str, OutputKind]]
    """What it produces, by the name after `stage:NAME/`; that of `stage:NAME` is empty."""
    is_configured: ClassVar[bool] = False
    """Whether its table is a run's configuration, and so has the recipe's `[defaults]`."""

    def __init__(self, name: str, values: Mapping[str, Any], recipe: str) -> None:
        """`values` is the stage's table without `type`, whole: defaults and files are in it. Raises
        `ConfigError`."""
        self.name = name
        self.recipe = recipe
        self.values = values
        self.code: str | None = None
        """Digest of the code of a kind that a user wrote."""
        self.begun = uuid.uuid4().hex
        """What tells this beginning of the recipe from others, for stages that are made anew each
        time; a recipe that goes on has the one that it began with."""
        self.references = tuple(references_in(values))

    @classmethod
    def of_defaults(
        cls, defaults: Mapping[str, Any], table: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return what a stage of this kind, with this table of its own, has of the recipe's
        `[defaults]`."""
        return defaults if cls.is_configured else {}

    def wanted(self, reference: Reference) -> Sequence[OutputKind]:
        """Return the kinds of outputs that may stand there."""
        raise ConfigError(
            f"stages.{self.name}.{reference.key} = {str(reference)!r}: {NO_REFERENCE}"
        )

    @abstractmethod
    def parts(self) -> Any:
        """Return what decides the product beside the inputs, as plain values: settings with the
        references as they are written, digests of files and of the user's code."""

    def identity(self, inputs: Sequence[Input]) -> str:
        taken = {each.key: each.output.sha256 for each in inputs}
        whole = [type(self).__name__, self.code, self.parts(), taken]
        return hashlib.sha256(json.dumps(whole, sort_keys=True, default=str).encode()).hexdigest()

    @abstractmethod
    def check(self, stand_ins: StandIns, say: Say) -> None:
        """Check all that can be checked before anything of the recipe runs. Raises the
        `MortalError` that names what is wrong."""

    @abstractmethod
    def product(self, job: Job) -> Product | None:
        """Return what it has produced, if that is there, whole."""

    def has_begun(self, job: Job) -> bool:
        """Return whether it has been begun before, and was checked then."""
        return False

    def computes(self, job: Job) -> Plan | None:
        """Return the plan that says what it computes on, if it has one."""
        return None

    def gpus(self) -> frozenset[str]:
        """Return the GPUs of this machine that it computes on, by uuid, where no configuration says
        so. Raises `ConfigError` for one that is not there."""
        return frozenset()

    def model(self) -> Mapping[str, Any] | None:
        """Return the table `[model]` with which it begins, as it is written."""
        found: Mapping[str, Any] = self.values.get("model", {})
        return found if self.is_configured else None

    def rows(self) -> Sequence[Mapping[str, Any]] | None:
        """Return some rows with the columns of the dataset that it will produce."""
        return None


@dataclass(frozen=True, kw_only=True, slots=True)
class GateSettings:
    """What a gate decides about, and how."""

    run_id: str
    name: str
    """Name of the model in the registry."""
    models_dir: Path
    approval: Literal["person", "threshold"]
    min_gain: float
    overrides: tuple[str, ...]
    """Changes to how models are compared."""


NO_REFERENCE = "nothing of another stage can stand here; name a file or folder"


class RunStage(Stage):
    """A stage that is a run."""

    @abstractmethod
    def config(self, job: Job) -> RunConfig:
        """Return the configuration of the run, with its id. Raises `ConfigError`."""

    @abstractmethod
    def written(self) -> RunConfig:
        """Return the configuration as it is written, with references in it."""

    def computes(self, job: Job) -> Plan | None:
        return Plan(self.config(job))


class GateStage(Stage):
    """A stage that ends with a decision, which may be a person's."""

    @abstractmethod
    def settings(self, job: Job) -> GateSettings:
        """Return what is decided about."""

    @abstractmethod
    def decided(self, job: Job, decision: Decision) -> Product:
        """Keep the decision as what the stage has produced."""
