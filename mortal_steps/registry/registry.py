"""One name: its models, the decisions about them, and the link `production`, which follows these.

A model is a folder of its own, linked from the run that it is from. A decision is written first, as
a numbered record; then the link is swapped by one rename. A kill between the two leaves the old
model in use, and whoever comes next swaps the link.
"""

import contextlib
import re
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from mortal_steps.errors import (
    ConfigError,
    CorruptFileError,
    ProductionMovedError,
    StoreError,
)
from mortal_steps.statistics.paired import Paired
from mortal_steps.store import RunStore
from mortal_steps.store.files import hidden_beside, link_verified, locked, sync_to_disk, writing
from mortal_steps.types.references import Below

PRODUCTION = "production"
HISTORY = "history"
VERSIONS = "versions"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

Action = Literal["promoted", "refused", "rolled back"]


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class ModelVersion:
    """A trained model that can be put to use."""

    id: Below
    """Name of its folder: the run's id and the beginning of the weights' digest."""
    run_id: str
    run_uid: str
    """Distinguishes two runs with the same id."""
    runs: tuple[str, ...]
    """Ids of the run and, if that is a fork, of those that it goes on from."""
    sha256: str
    """Digest of the folder's manifest."""
    weights_sha256: str
    """sha256 of its safetensors, as in `FinalModel`."""

    @property
    def path(self) -> str:
        """Its folder, relative to that of the name."""
        return f"{VERSIONS}/{self.id}"


@dataclass(frozen=True, kw_only=True, slots=True, weakref_slot=True)
class Decision:
    """A decision about a name."""

    action: Action
    version: ModelVersion
    """The version that was decided about: it is in use from then on, or it was refused."""
    before: str | None
    """Id of the version in use that it was decided against."""
    by: str
    """Who decided: a person, or a threshold."""
    why: str
    at: float = field(default_factory=time.time)
    """Seconds since the epoch."""
    request: str | None = None
    """The request for the decision, which answers the same request when it comes again."""
    metrics: Mapping[str, float] | None = None
    """What the version scored in the comparison on which the decision is based."""
    against: Mapping[str, float] | None = None
    """What it was compared with, if there was anything."""
    paired: Paired | None = None
    """Both rewards problem by problem, where they are known so."""


class Registry:
    """Everything about one name, in `models_dir/name`."""

    def __init__(self, models_dir: Path, name: str) -> None:
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"name = {name!r} cannot name a folder: use letters, digits, '.', '_' and '-', and "
                "start with a letter or a digit"
            )
        self.name = name
        self.store = RunStore(models_dir / name)

    @property
    def link(self) -> Path:
        return self.store.root / PRODUCTION

    def command(self, run: str, *options: str) -> str:
        """Return the command that promotes the model of a run, as commands know it, to this name in
        this folder."""
        models_dir, here = self.store.root.parent.absolute(), Path.cwd()
        if models_dir.is_relative_to(here):
            models_dir = models_dir.relative_to(here)
        place = ["--name", self.name, "--models-dir", str(models_dir)]
        return f"mortal promote {run} {shlex.join([*place, *options])}"

    def history(self) -> Sequence[Decision]:
        """Return every decision, oldest first; raises `CorruptFileError`."""
        found: list[Decision] = []
        for path in sorted(self.store.path(HISTORY).glob("[0-9]*.json")):
            record = self.store.find_record(_path(len(found) + 1), Decision)
            if record is None:
                raise CorruptFileError(
                    f"{path} does not follow the decision before it, which is missing; restore it "
                    "from a copy"
                )
            found.append(record[1])
        return found

    def production(self) -> ModelVersion | None:
        used = in_use(self.history())
        return used[-1] if used else None

    def answered(self, request: str) -> Decision | None:
        return next((made for made in self.history() if made.request == request), None)

    def add(
        self,
        run_id: str,
        run_uid: str,
        runs: tuple[str, ...],
        weights_sha256: str,
        files: Mapping[str, tuple[Path, str]],
    ) -> ModelVersion:
        """Bring in a model: `files` says, by name, where each file is and its digest as listed
        there. They are then kept in this folder, even if their run is removed. If the version is
        already there whole, it is the answer.

        Raises `CorruptFileError` for a file that does not match its digest, and `StoreError`.
        """
        version_id = f"{run_id}-{weights_sha256[:8]}"
        path = f"{VERSIONS}/{version_id}"
        with self._alone():
            self.store.remove_leftovers(VERSIONS)
            try:
                return self._whole(version_id)
            except StoreError:  # missing, damaged, or half-written by a process that was killed
                pass
            digests = {name: digest for name, (_, digest) in files.items()}
            with self.store.committing_folder(path, hashed=digests) as folder:
                for name, (source, digest) in files.items():
                    link_verified(source, folder / name, digest)
            version = ModelVersion(
                id=version_id,
                run_id=run_id,
                run_uid=run_uid,
                runs=runs,
                sha256=self.store.folder_digest(path),
                weights_sha256=weights_sha256,
            )
            self.store.write_record(f"{path}.json", version, ModelVersion)
            return version

    def _whole(self, version_id: str) -> ModelVersion:
        found = self.store.find_record(f"{VERSIONS}/{version_id}.json", ModelVersion)
        if found is None:
            raise StoreError(f"{self.store.root / VERSIONS} has no version {version_id}")
        self.store.verify_folder(found[1].path, found[1].sha256)
        return found[1]

    def follow(self) -> None:
        """Set the link to what the history says, in case a kill came between the two."""
        with self._alone():
            self._follow()

    def decide(self, decision: Decision) -> Decision:
        """Write the decision down and move the link, once per `request`. Raises `CorruptFileError`,
        and `ProductionMovedError` if another version than `before` is in use."""
        with self._alone():
            made = self.answered(decision.request) if decision.request is not None else None
            if made is None:
                self._whole(decision.version.id)
                self._append(decision)
                made = decision
            self._follow()
            self._drop_if_refused(made)
            return made

    def roll_back(self, *, by: str, why: str, to: str | None = None) -> Decision:
        """Put an earlier version to use again: the one before, or one of the run `to`. A rollback
        that a kill has cut short is completed instead. Raises `StoreError` if there is none."""
        history = self.history()
        used = in_use(history)
        if not used:
            raise StoreError(f"{self.name}: nothing is in production in {self.store.root}")
        if history[-1].action == "rolled back" and not self._leads_to(used[-1]):
            self.follow()
            return history[-1]
        target = self._earlier(used, to)
        before = used[-1].id
        return self.decide(
            Decision(action="rolled back", version=target, before=before, by=by, why=why)
        )

    def _earlier(self, used: Sequence[ModelVersion], to: str | None) -> ModelVersion:
        if to is None:
            if len(used) < 2:
                raise StoreError(
                    f"{self.name}: nothing was in production before {used[-1].id}; name a version "
                    "with --to"
                )
            return used[-2]
        earlier = [made.version for made in self.history() if made.action != "refused"]
        found = [version for version in earlier if to in (version.run_id, version.id)]
        if not found:
            runs = ", ".join(dict.fromkeys(version.run_id for version in earlier))
            raise StoreError(f"{self.name}: {to} was never in production (these were: {runs})")
        if found[-1].id == used[-1].id:
            raise StoreError(f"{self.name}: {found[-1].id} is in production already")
        return found[-1]

    def _append(self, made: Decision) -> None:
        history = self.history()
        used = in_use(history)
        now = used[-1].id if used else None
        if made.before != now:
            raise ProductionMovedError(
                f"{self.name}: {now or 'nothing'} is in production by now, and this was decided "
                f"against {made.before or 'nothing'}; compare again"
            )
        self.store.write_record(_path(len(history) + 1), made, Decision)

    def _follow(self) -> None:
        used = in_use(self.history())
        if not used:
            return
        if self._leads_to(used[-1]):
            return
        partial = hidden_beside(self.link, "partial")
        with writing(self.link):
            partial.symlink_to(used[-1].path)
            partial.replace(self.link)
            sync_to_disk(self.store.root)

    def _drop_if_refused(self, made: Decision) -> None:
        """Remove the folder of a refused model: its run has it, and brings it in again."""
        used = {other.version.id for other in self.history() if other.action != "refused"}
        if made.action == "refused" and made.version.id not in used:
            self.store.remove_folder(made.version.path)

    def _leads_to(self, version: ModelVersion) -> bool:
        return self.link.is_symlink() and self.link.readlink() == Path(version.path)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Hold the name's lock, waiting for it: decisions take milliseconds."""
        with locked(self.store.path("lock")):
            self.store.remove_leftovers("")
            self.store.remove_leftovers(HISTORY)
            yield


def in_use(history: Sequence[Decision]) -> Sequence[ModelVersion]:
    """Return the model in use, last, preceded by those that a rollback can return to."""
    used: list[ModelVersion] = []
    for made in history:
        if made.action == "refused":
            continue
        ids = [version.id for version in used]
        if made.action == "rolled back" and made.version.id in ids:
            del used[ids.index(made.version.id) :]
        used.append(made.version)
    return used


def list_names(models_dir: Path) -> list[Registry]:
    """Return every name in the models directory about which a decision was made."""
    folders = sorted(path.parent for path in models_dir.glob(f"[!.]*/{HISTORY}"))
    return [Registry(models_dir, folder.name) for folder in folders]


def runs_in_use(models_dir: Path) -> set[str]:
    """Return the ids of the runs whose models are in production, and of the runs that these are
    forks of. Empty where there is no such folder. Raises `CorruptFileError` for a damaged history:
    nothing is known then of what is in use."""
    used = (registry.production() for registry in list_names(models_dir))
    return {run for version in used if version is not None for run in version.runs}


def _path(number: int) -> str:
    return f"{HISTORY}/{number:06d}.json"
