"""What a fork takes over from its parent, as links to the same files:

    checkpoints/step-12   with a state.json of its own where the configuration is another
    weights/v11, v12      those that sample the first steps
    base_model.json, data/train.arrow
    orders/000002.json, data/prepared          of a run that learns from rows

and as copies the logs up to the checkpoint. Completions and scores are made again.
"""

import dataclasses
import json
from collections.abc import Collection, Mapping
from typing import Any

from mortal_steps.config import RolloutConfig
from mortal_steps.policy import journal
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.policy.on_disk.checkpoints import STATE_FILE, CheckpointState
from mortal_steps.policy.starting_model import base_model
from mortal_steps.report.timings import STAGES_OF_A_STEP
from mortal_steps.rollout.episodes.base import CHAT_FILE
from mortal_steps.runs.logs import LOGS, TIMINGS, RunLogs
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest, last_evaluation
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.store.files import link_file, link_verified
from mortal_steps.types import Checkpoint
from mortal_steps.types.identity import Parent


class ForkFiles:
    """Fills the run directory of a fork, `store`."""

    def __init__(
        self, parent: Run, saved: Checkpoint, store: RunStore, rollout: RolloutConfig, own: str
    ) -> None:
        """`rollout` is the fork's, and `own` its fingerprint."""
        self._parent = parent
        self._saved = saved
        self._step = saved.step
        self.store = store
        self._rollout = rollout
        self._fingerprint = own
        self._state = checkpoints.read_state(parent.store, saved.path)

    @property
    def origin(self) -> Parent:
        parent = self._parent.info
        return Parent(
            run_id=parent.run_id,
            uid=parent.uid,
            step=self._step,
            state_id=self._saved.state_id,
            fingerprint=parent.fingerprint,
            history_id=self._state.history_id,
        )

    def take_state(self) -> None:
        """Link the checkpoint and the weights that sample the first steps, before the parent
        removes them. Raises `StoreError`, `CorruptFileError` for what is gone already."""
        self._link_folder(self._saved.path, self._own_state())
        for version in recovery.sampling_versions(self._rollout, self._step):
            if version <= self._step and weights.find_in(self._parent.store, version):
                self._link_folder(weights.path_of(version))

    def take_records(self, num_eval_problems: int, *, without: Collection[str] = ()) -> None:
        """Take over the logs, but for those named, and what is known of the starting model, and
        write the manifest. Raises `StoreError`."""
        self._take_logs(without)
        if self._parent.store.path(base_model.RECORD_FILE).exists():
            self._link(base_model.RECORD_FILE)
        if self._parent.store.path(CHAT_FILE).exists():
            self._link(CHAT_FILE)
        manifest = RunManifest(
            status="created",
            step=self._step,
            logs=RunLogs(self.store.root).marks(),
            evaluation=last_evaluation(self.store, self._step, num_eval_problems),
        )
        self.store.write_record(MANIFEST_FILE, manifest, RunManifest)

    def take_order(self, order: str | None) -> None:
        """Take over the order of the rows of the epoch under way."""
        if order is not None:
            self._link(order)

    def checkpoint(self) -> Checkpoint:
        return dataclasses.replace(
            self._saved,
            sha256=self.store.folder_digest(self._saved.path),
            state_id=checkpoints.read_state(self.store, self._saved.path).state_id,
        )

    def _own_state(self) -> CheckpointState | None:
        """Return the fork's own checkpoint state; None if the parent's is right."""
        state, fingerprint = self._state, self._fingerprint
        if fingerprint == state.fingerprint:
            return None
        return dataclasses.replace(
            state,
            state_id=journal.forked_state_id(state.state_id, state.fingerprint, fingerprint),
            history_id=journal.forked_state_id(state.history_id, state.fingerprint, fingerprint),
            fingerprint=fingerprint,
            forked=True,
        )

    def _take_logs(self, without: Collection[str]) -> None:
        logs = RunLogs(self.store.root)
        for name in set(LOGS) - set(without):
            rows = [row for row in self._parent.logs.read(name) if self._is_past(name, row)]
            if rows:
                logs.replace(name, rows)

    def _is_past(self, log: str, row: Mapping[str, Any]) -> bool:
        of_a_step = log == TIMINGS and row.get("stage") in STAGES_OF_A_STEP
        return bool(row["step"] < self._step or (row["step"] == self._step and not of_a_step))

    def _link(self, relative: str) -> None:
        link_file(self._parent.store.path(relative), self.store.path(relative))

    def _link_folder(self, relative: str, state: CheckpointState | None = None) -> None:
        """Link a committed folder of the parent's, with another state.json if one is given."""
        listed = self._parent.store.folder_files(relative)
        if state is not None:
            del listed[STATE_FILE]
        with self.store.committing_folder(relative, hashed=listed) as folder:
            for name, digest in listed.items():
                source = self._parent.store.path(relative) / name
                link_verified(source, folder / name, digest)
            if state is not None:
                (folder / STATE_FILE).write_text(
                    json.dumps(dataclasses.asdict(state)), encoding="utf-8"
                )
