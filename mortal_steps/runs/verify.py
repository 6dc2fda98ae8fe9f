"""Every file of a run directory against its digest, and the chain of state ids.

What damage means depends on where it is: most of a run can be made again, a checkpoint can be
passed over for an older one, and its identity, settings and problems are nowhere else. The picture
of the reward and what workers printed have no digest: nothing reads them.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mortal_steps.data.prepared import REFERENCE
from mortal_steps.data.problem_files import check_problem_file
from mortal_steps.errors import CorruptFileError, RunNotFoundError, StoreError
from mortal_steps.policy import journal
from mortal_steps.policy.journal import JournalEntry
from mortal_steps.policy.on_disk import checkpoints, rollout_files, weights
from mortal_steps.policy.on_disk.checkpoints import BestCheckpoint, CheckpointState
from mortal_steps.policy.on_disk.rollout_files import Pruned, pruned_before
from mortal_steps.policy.starting_model import base_model
from mortal_steps.rewards.source_history import SOURCES_FILE, SourceHistory
from mortal_steps.rollout.episodes.base import CHAT_FILE
from mortal_steps.runs.argument import run_argument
from mortal_steps.runs.checked import (
    AGAIN,
    LOST,
    PASSED_OVER,
    Checked,
    FileChecks,
    Ids,
    Outcome,
    broken_link,
    check_turns,
    first_ids,
    other_state,
)
from mortal_steps.runs.costs import COSTS
from mortal_steps.runs.ending import FILE as ENDING
from mortal_steps.runs.ending import Ended
from mortal_steps.runs.lease import RECORD_FILE, LeaseRecord, is_driven
from mortal_steps.runs.logs import LOGS, prefix_digest
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.store.files import digest_file
from mortal_steps.store.identity import CONFIG_FILE, IDENTITY_FILE
from mortal_steps.store.records import KINDS, harness_files, shard_files
from mortal_steps.types import ChatSettings, HarnessAnswer, Problem, StepResult
from mortal_steps.types.identity import RunInfo


@dataclass(kw_only=True, slots=True)
class RunCheck:
    """The result of checking a run directory."""

    files: list[Checked] = field(default_factory=list)
    num_steps: int = 0
    """Steps done, as the manifest says."""
    num_linked: int = 0
    """Steps whose state id follows from the one before."""
    is_driven: bool = False
    """Whether a process drives the run: files that it replaces meanwhile may look damaged."""


class _Checking:
    """One check of a run directory, which changes nothing."""

    def __init__(self, root: Path, note: Callable[[Checked], None] | None) -> None:
        self._store = RunStore(root)
        self._result = RunCheck(is_driven=is_driven(self._store))
        self._note = note
        self._files = FileChecks(self._store, self._noted)
        self._checkpoint = 0
        """Step of the newest whole checkpoint."""
        self._saved: dict[int, CheckpointState] = {}
        """What the whole checkpoints say of themselves, by step."""
        self._has_turns = False
        """Whether completions have turns of a dialogue."""
        self._again: Outcome = AGAIN
        """What becomes of a file that a run makes again while it trains. A run that is complete
        trains no more, and needs none of them."""

    def _noted(self, file: Checked) -> None:
        self._result.files.append(file)
        if self._note is not None:
            self._note(file)

    def run(self) -> RunCheck:
        info = self._files.record(IDENTITY_FILE, RunInfo, LOST)
        manifest = self._files.record(MANIFEST_FILE, RunManifest, AGAIN, optional=True)
        if manifest is not None and self._final(manifest):
            self._again = PASSED_OVER
        self._files.record(RECORD_FILE, LeaseRecord, self._again, optional=True)
        if info is not None:
            self._config(info)
            for problems in (info.train_problems, info.eval_problems):
                self._files.reference(problems, LOST, check_problem_file)
            if (prepared := info.prepared_rows) is not None:
                self._files.folder(prepared.path, prepared.sha256, LOST)
                if self._store.path(REFERENCE).exists():
                    self._files.folder(REFERENCE, None, self._again)
        self._files.record(ENDING, Ended, self._again, optional=True)
        self._files.record(SOURCES_FILE, SourceHistory, LOST, optional=True)
        chat = self._files.record(CHAT_FILE, ChatSettings, self._again, optional=True)
        self._has_turns = chat is not None
        self._base_model()
        self._checkpoints(info, manifest)
        if manifest is None:
            manifest = RunManifest(status="created", step=self._checkpoint)
        else:
            self._logs(manifest)
        self._result.num_steps = manifest.step
        self._steps(info, manifest.step)
        self._evaluations()
        self._weights(info)
        return self._result

    # parts of the run

    def _config(self, info: RunInfo) -> None:
        path = self._store.path(CONFIG_FILE)
        whole = path.exists() and digest_file(path) == info.config_sha256
        self._files.file(path, None if whole else "is missing or was altered", LOST)

    def _base_model(self) -> None:
        made = self._files.record(
            base_model.RECORD_FILE, base_model.StartingModel, self._again, optional=True
        )
        if made is not None:
            cache = RunStore(base_model.model_cache(self._store.root.parent))
            FileChecks(cache, self._noted).folder(made.key, made.sha256, self._again)

    def _checkpoints(self, info: RunInfo | None, manifest: RunManifest | None) -> None:
        known = {saved.step: saved.sha256 for saved in manifest.checkpoints} if manifest else {}
        steps = sorted({*checkpoints.saved_steps(self._store), *known})
        for step in steps:
            path = checkpoints.path_of(step)
            # A fork has nothing before its first checkpoint.
            only = info is not None and info.parent is not None and steps == [info.parent.step]
            outcome = LOST if only else PASSED_OVER
            if self._files.folder(path, known.get(step), outcome):
                self._checkpoint = step
                self._saved[step] = checkpoints.read_state(self._store, path)
        self._files.record(checkpoints.BEST_FILE, BestCheckpoint, self._again, optional=True)

    def _logs(self, manifest: RunManifest) -> None:
        for name in LOGS:
            mark = manifest.logs.get(name)
            path = self._store.path(name)
            if mark is not None and (path.exists() or mark.length):
                whole = prefix_digest(path, mark.length) == mark.sha256
                self._files.file(path, None if whole else "is not what was logged", AGAIN)

    def _steps(self, info: RunInfo | None, done: int) -> None:
        """Check the steps: before the newest checkpoint history, after it replayable."""
        before = first_ids(info) if info else None
        pruned = pruned_before(self._store)
        self._files.record(rollout_files.RECORD_FILE, Pruned, self._again, optional=True)
        for step in range(info.first_step if info else 0, self._last_step(done)):
            outcome = PASSED_OVER if step < self._checkpoint else self._again
            folder = f"steps/{step:06d}"
            required = step < done
            gone = step < pruned
            entry = self._files.record(
                f"{folder}/journal.json", JournalEntry, outcome, not required
            )
            result = self._files.record(f"{folder}/result.json", StepResult, outcome, not required)
            if not gone:
                drawn = entry is None or bool(entry.request.batch.shards)
                self._problems(folder, outcome, required=required and drawn)
                self._shards(folder, entry, outcome)
            if required and info is not None and result is not None:
                if before is not None:
                    self._link(before, entry, result, info.fingerprint)
                self._saved_after(result)
                before = (result.state_id, result.history_id)
            elif before is not None and info is not None and entry is not None:
                # What weights it left, only the result says.
                batch = entry.batch_sha256
                before = (None, journal.next_state_id(before[1], batch, info.fingerprint))
            else:
                before = None

    def _problems(self, folder: str, outcome: Outcome, *, required: bool) -> None:
        """Check the problems that the step's rounds were sampled for."""
        self._files.record(f"{folder}/batch.json", list[Problem], outcome, not required)
        for path in sorted(self._store.path(folder).glob("batch-*.json")):
            self._files.record(f"{folder}/{path.name}", list[Problem], outcome)

    def _shards(self, folder: str, entry: JournalEntry | None, outcome: Outcome) -> None:
        """Check the shards of the step taken; else those that exist."""
        if entry is not None:
            batch = entry.request.batch
            sampled = [shard.generation.file for shard in batch.shards] if self._has_turns else []
            for file in batch.files():
                check = check_turns if file in sampled else RunStore.check_record
                self._files.reference(file, outcome, check)
            return
        for path, content in shard_files(self._store.path(folder)):
            self._files.record(f"{folder}/{path.name}", KINDS[content], outcome)

    def _link(
        self, before: Ids, entry: JournalEntry | None, result: StepResult, fingerprint: str
    ) -> None:
        damage = broken_link(before, entry, result, fingerprint)
        if damage is None:
            self._result.num_linked += 1
        else:
            path = self._store.path(f"steps/{result.step:06d}/result.json")
            self._files.file(path, damage, LOST)

    def _saved_after(self, result: StepResult) -> None:
        """Check that the checkpoint of a step holds what the step left."""
        saved = self._saved.get(result.step + 1)
        if saved is not None:
            damage = other_state(saved, result)
            folder = self._store.path(checkpoints.path_of(saved.step))
            self._files.file(folder / checkpoints.STATE_FILE, damage, LOST)

    def _evaluations(self) -> None:
        for folder in sorted(self._store.path("evaluations").glob("*")):
            judged = f"evaluations/{folder.name}/metrics.json"
            self._files.record(judged, dict[str, float], self._again, optional=True)
            for path, content in shard_files(folder):
                relative = str(path.relative_to(self._store.root))
                self._files.record(relative, KINDS[content], PASSED_OVER)
            for path in harness_files(folder):
                relative = str(path.relative_to(self._store.root))
                self._files.record(relative, HarnessAnswer, PASSED_OVER)

    def _weights(self, info: RunInfo | None) -> None:
        first = info.first_step if info else 0
        for version in weights.published_versions(self._store):
            outcome = self._again
            if version < first:  # of a fork's parent; only its first steps are sampled with them
                outcome = LOST if self._checkpoint == first else PASSED_OVER
            path, sha256 = weights.path_of(version), self._published_as(version)
            self._files.folder(path, sha256, outcome)

    def _final(self, manifest: RunManifest) -> bool:
        """Check the final model; returns whether the run is complete."""
        whole = manifest.status == "completed" and manifest.final is not None
        for path, sha256 in manifest.final.folders() if manifest.final else ():
            whole = self._files.folder(path, sha256, AGAIN) and whole
        return whole

    # what is where

    def _last_step(self, done: int) -> int:
        return max([done, *(number + 1 for number, _ in self._store.numbered("steps"))])

    def _published_as(self, version: int) -> str | None:
        """Return the digest that the step before recorded, if it is known."""
        result = journal.find_result(self._store, version - 1) if version else None
        return result.weights.sha256 if result and result.weights else None


def check_here(
    runs_dir: Path, run_id: str, note: Callable[[Checked], None] | None = None
) -> RunCheck:
    """`check_run` on the flow's machine. Raises `StoreError` where a Volume alone has the run."""
    with contextlib.suppress(CorruptFileError, RunNotFoundError):
        run = find_run(runs_dir, run_id)
        modal, last = run.config.compute.modal, run.manifest.step - 1
        was_there = run.config.compute.volume is not None or run.store.path(COSTS).exists()
        here = last < 0 or run.store.path(f"steps/{last:06d}/result.json").exists()
        if was_there and not here:
            raise StoreError(
                f"most files of run {run_id} are on the Volume {modal.volume}, not in {runs_dir}; "
                f"`mortal verify {run_id} --volume {modal.volume}` checks them there, and `mortal "
                f"fetch {run_argument(run.store.root)} --volume {modal.volume} --all` downloads "
                "them"
            )
    return check_run(runs_dir, run_id, note)


def check_run(
    runs_dir: Path, run_id: str, note: Callable[[Checked], None] | None = None
) -> RunCheck:
    """Check every file of a run; `note` gets each result as it is known. Raises `RunNotFoundError`;
    a damaged run.json is a result."""
    root = runs_dir / run_id
    if not (root / MANIFEST_FILE).exists():
        with contextlib.suppress(CorruptFileError):
            find_run(runs_dir, run_id)
    result = _Checking(root, note).run()
    result.is_driven = result.is_driven or is_driven(RunStore(root))  # which may have begun since
    return result
