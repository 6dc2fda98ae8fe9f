"""A recipe on disk: what it was begun with, and how its stages stand.

runs/.recipes/<name>/
  recipe.json                  the record
  logs/<stage>.log             what the process of a stage prints
  lock, lease.json             of the process that drives the recipe
  slots/                       a file for each lease of GPUs that the server knows of
  <stage>-<identity>/          products of stages that are no runs (products.py)
"""

import logging
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from mortal_steps.errors import RunNotFoundError, StoreError
from mortal_steps.extensions import nearest
from mortal_steps.recipes.file import RecipeConfig, parse_recipe
from mortal_steps.runs.argument import RECIPES
from mortal_steps.runs.lease import Lease, acquire, is_driven
from mortal_steps.store import RunStore

logger = logging.getLogger(__name__)

RECORD = "recipe.json"
Status = Literal["running", "completed", "failed", "stopped", "waiting", "interrupted"]
"""`waiting`: for a person's decision; `interrupted`: running, and no process drives it."""
Standing = Literal[
    "waits", "ready", "running", "complete", "failed", "stopped", "interrupted", "asks", "refused"
]
"""`interrupted`: running, and no process drives the recipe; `asks`: a person has to decide;
`refused`: a gate before it has not let the model pass."""
Asker = Literal["command", "flow run"]
"""What asks a person for a decision: a command, after which the recipe is resumed, or a flow run,
which is suspended and goes on by itself once it is answered."""
RESUME_AT = "press Resume, in the menu ⋮, at "
"""Begins what is said of a stage whose question a flow run asks; its page follows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StageRecord:
    """How a stage stands."""

    kind: str
    """Name of its kind, such as `train`."""
    parents: tuple[str, ...]
    """Stages that it takes something from."""
    standing: Standing = "waits"
    job_id: str | None = None
    """Name of its folder and, if it is a run, the run's id. None while an input is missing."""
    headline: str = ""
    """What was reached, why it failed, or what it waits for."""
    asked_by: Asker = "command"
    """What asks for the decision, where a person has to decide."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    sha256: str | None = None
    """Digest of its main output."""
    began_at: float | None = None
    """Seconds since the epoch, of the attempt that the recipe has made now; None: it was complete
    before."""
    ended_at: float | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class RecipeRecord:
    """A recipe, as it was last driven."""

    name: str
    uid: str
    config: Mapping[str, Any]
    """The recipe as plain values, with the files of its stages in it."""
    working_dir: str
    """Where relative paths start."""
    begun: str = ""
    """What tells this beginning of the recipe from others; the same until it is complete."""
    only: tuple[str, ...] = ()
    """Stages that were asked for; none: all."""
    status: Status = "running"
    error: str | None = None
    ui_url: str | None = None
    """Page of its flow run."""
    stages: Mapping[str, StageRecord] = field(default_factory=dict)
    """In an order in which each comes after those that it takes something from."""
    earlier: Mapping[str, str] = field(default_factory=dict)
    """Jobs of stages in earlier attempts, by stage: what they have made stays until this attempt
    knows of another."""
    began_at: float = field(default_factory=time.time)
    updated_at: float = 0.0

    @property
    def jobs(self) -> Mapping[str, str]:
        """The job of each stage that has had one, by stage."""
        now = {name: stage.job_id for name, stage in self.stages.items() if stage.job_id}
        return {**self.earlier, **now}

    def recipe(self) -> RecipeConfig:
        return parse_recipe(self.config, origin=f"recipe {self.name}")


class RecipeFolder:
    """The folder of a recipe."""

    def __init__(self, runs_dir: Path, name: str) -> None:
        self.store = RunStore(runs_dir / RECIPES / name)
        self.name = name
        self.runs_dir = runs_dir
        self._lease: Lease | None = None

    def read(self) -> RecipeRecord | None:
        """Return the record; raises `CorruptFileError`. What no process drives is not running."""
        found = self.store.find_record(RECORD, RecipeRecord)
        if found is None:
            return None
        record = found[1]
        if record.status == "running" and not is_driven(self.store):
            cut_off = {
                name: replace(stage, standing="interrupted")
                for name, stage in record.stages.items()
                if stage.standing == "running"
            }
            stages = {**record.stages, **cut_off}
            return replace(record, status="interrupted", stages=stages)
        return record

    def begin(
        self,
        config: RecipeConfig,
        only: tuple[str, ...],
        ui_url: str | None,
        *,
        beginning: str | None = None,
        goes_on: bool = False,
    ) -> RecipeRecord:
        """Record that the recipe is driven, and with what. That is a new `beginning`, by the id of
        the flow run, unless this flow run has begun before or, with `goes_on`, the last beginning
        has not come to its end."""
        found = self.store.find_whole(RECORD, RecipeRecord, "written anew")
        before = found[1] if found else None
        last = ""
        if before is not None:
            # A flow run that comes again goes on, also if it was killed once all was recorded.
            is_its_own = ui_url is not None and before.ui_url == ui_url
            if is_its_own or (goes_on and before.status != "completed"):
                last = before.begun
        record = RecipeRecord(
            name=self.name,
            uid=before.uid if before else uuid.uuid4().hex,
            begun=last or beginning or uuid.uuid4().hex,
            config=config.model_dump(mode="json", exclude_none=True),
            working_dir=os.getcwd(),
            only=only,
            ui_url=ui_url,
            earlier={
                name: job_id
                for name, job_id in (before.jobs.items() if before else ())
                if only or name in config.stages
            },
        )
        self.write(record)
        return record

    def write(self, record: RecipeRecord) -> None:
        """Commit the record. Raises `LeaseLostError` if the recipe was taken over."""
        if self._lease is not None:
            self._lease.check()
        self.store.write_record(RECORD, replace(record, updated_at=time.time()), RecipeRecord)

    def log_file(self, stage: str) -> Path:
        return self.store.path(f"logs/{stage}.log")

    @property
    def slots(self) -> Path:
        """Where the ids of the leases are that its stages have of the server's GPUs."""
        return self.store.path("slots")

    def acquire(self) -> Lease:
        """Become the one process that drives it. Raises `StoreError` if another does."""
        self.store.root.mkdir(parents=True, exist_ok=True)
        self._lease = acquire(self.store)
        return self._lease


def find_recipe(runs_dir: Path, name: str) -> RecipeFolder:
    """Return the folder of a recipe that was begun; raises `RunNotFoundError`."""
    folder = RecipeFolder(runs_dir, name)
    if folder.store.path(RECORD).exists():
        return folder
    known = [each.name for each in list_recipes(runs_dir)]
    near = nearest(name, known, cutoff=0.6)
    meant = f"; did you mean {near}?" if near else ""
    raise RunNotFoundError(
        f"no recipe {name!r} in {runs_dir}{meant} (recipes there: {', '.join(known) or 'none'})"
    )


def is_recipe_name(runs_dir: Path, name: str) -> bool:
    """Return whether a recipe of this name was begun there."""
    return (runs_dir / RECIPES / name / RECORD).exists()


def list_recipes(runs_dir: Path) -> list[RecipeFolder]:
    """Return the recipes that were begun, by name."""
    found = sorted((runs_dir / RECIPES).glob(f"*/{RECORD}"))
    return [RecipeFolder(runs_dir, path.parent.name) for path in found]


def working_dir_of(record: RecipeRecord) -> Path:
    """Return where relative paths of the recipe start. Raises `StoreError` for a folder that is not
    on this machine."""
    path = Path(record.working_dir)
    if not path.is_dir():
        raise StoreError(
            f"recipe {record.name} was begun in {path}, which is not there; go to the folder of "
            "the project, and begin it with its file: what is complete is not made again"
        )
    return path


def read_all(runs_dir: Path) -> list[tuple[RecipeFolder, RecipeRecord]]:
    """Return the recipes that were begun, with their records; a damaged one is warned of."""
    found = []
    for folder in list_recipes(runs_dir):
        try:
            record = folder.read()
        except StoreError as error:
            logger.warning("%s", error)
            continue
        if record is not None:
            found.append((folder, record))
    return found
