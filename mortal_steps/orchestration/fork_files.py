"""What a fork takes over from its parent, as links to the same files:

    checkpoints/step-12   with a state.json of its own where the configuration is another
    weights/v11, v12      those that sample the first steps
    base_model.json, data/train.arrow

and as copies the logs up to the checkpoint. Completions and scores are made again.
"""

from __future__ import annotations

import dataclasses
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.config import RunConfig
from mortal_steps.orchestration.open_run import changes_between
from mortal_steps.orchestration.preflight import Problems
from mortal_steps.policy import journal
from mortal_steps.policy.on_disk import checkpoints, recovery, weights
from mortal_steps.policy.on_disk.checkpoints import STATE_FILE, CheckpointState
from mortal_steps.policy.starting_model import base_model
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.logs import LOGS, TIMINGS, RunLogs
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest, last_evaluation
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.store.files import link_file, link_verified
from mortal_steps.types import Checkpoint
from mortal_steps.types.identity import Parent

logger = logging.getLogger(__name__)

STAGES_OF_A_STEP = ("get_batch", "generate", "reward", "train_step")
"""Stages whose timings belong to the step being taken, counted from 0. The timings of other stages
belong to the number of steps done."""


def is_below(key: str, sections: Sequence[str]) -> bool:
    """Whether the key is one of `sections` or lies in one of them."""
    return any(key == section or key.startswith(f"{section}.") for section in sections)


class ForkFiles:
    """Fills the run directory of a fork, `store`."""

    def __init__(self, parent: Run, config: RunConfig, saved: Checkpoint, store: RunStore) -> None:
        self._parent = parent
        self._config = config
        self._changes = changes_between(parent.config, config)
        # A parent that older code began has another one than this code would give it.
        alike = not self._changes
        self._fingerprint = parent.info.fingerprint if alike else config.fingerprint()
        self._saved = saved
        self._step = saved.step
        self._store = store
        self._history_id = ""
        """The parent's, once `take_state` has read it."""

    def take_state(self) -> None:
        """Link the checkpoint and the weights that sample the first steps, so that they stay here
        if the parent removes them.

        Raises `StoreError`, and `CorruptFileError` for what the parent has removed already.
        """
        self._link_folder(self._saved.path, self._own_state())
        for version in recovery.sampling_versions(self._config.rollout, self._step):
            if version <= self._step and weights.find_in(self._parent.store, version):
                self._link_folder(weights.path_of(version))

    def complete(self, problems: Problems) -> None:
        """Write the rest of the run directory. Raises `StoreError`."""
        store, parent = self._store, self._parent.info
        self._take_logs()
        if self._parent.store.path(base_model.RECORD_FILE).exists():
            self._link(base_model.RECORD_FILE)
        origin = Parent(
            run_id=parent.run_id,
            uid=parent.uid,
            step=self._step,
            state_id=self._saved.state_id,
            fingerprint=parent.fingerprint,
            history_id=self._history_id,
        )
        info = write_identity(
            store,
            self._config,
            *problems,
            parent=origin,
            fingerprint=self._fingerprint,
            rounding=parent.rounding,
        )
        manifest = RunManifest(
            status="created",
            step=self._step,
            logs=RunLogs(store.root).marks(),
            evaluation=last_evaluation(store, self._step, info.num_eval_problems),
        )
        store.write_record(MANIFEST_FILE, manifest, RunManifest)
        fork = Run(store, self._config, info)
        judged_alike = not self._is_changed("rewards", "evaluation", "data")
        saved = dataclasses.replace(
            self._saved,
            sha256=store.folder_digest(self._saved.path),
            state_id=checkpoints.read_state(store, self._saved.path).state_id,
        )
        fork.note_checkpoint(saved, fork.score(self._step) if judged_alike else None)

    def _own_state(self) -> CheckpointState | None:
        """Return the fork's own state.json for the checkpoint; None if the parent's is right for
        the fork."""
        state = checkpoints.read_state(self._parent.store, self._saved.path)
        self._history_id = state.history_id
        fingerprint = self._fingerprint
        if fingerprint == state.fingerprint:
            return None
        return dataclasses.replace(
            state,
            state_id=journal.forked_state_id(state.state_id, state.fingerprint, fingerprint),
            history_id=journal.forked_state_id(state.history_id, state.fingerprint, fingerprint),
            fingerprint=fingerprint,
            forked=True,
        )

    def _take_logs(self) -> None:
        logs = RunLogs(self._store.root)
        for name in LOGS:
            rows = [row for row in self._parent.logs.read(name) if self._is_past(name, row)]
            if rows:
                logs.replace(name, rows)

    def _is_past(self, log: str, row: Mapping[str, Any]) -> bool:
        of_a_step = log == TIMINGS and row.get("stage") in STAGES_OF_A_STEP
        return bool(row["step"] < self._step or (row["step"] == self._step and not of_a_step))

    def _is_changed(self, *sections: str) -> bool:
        return any(is_below(key, sections) for key in self._changes)

    def _link(self, relative: str) -> None:
        link_file(self._parent.store.path(relative), self._store.path(relative))

    def _link_folder(self, relative: str, state: CheckpointState | None = None) -> None:
        """Link a committed folder of the parent's, with another state.json if one is given."""
        listed = self._parent.store.folder_files(relative)
        if state is not None:
            del listed[STATE_FILE]
        with self._store.committing_folder(relative, hashed=listed) as folder:
            for name, digest in listed.items():
                source = self._parent.store.path(relative) / name
                link_verified(source, folder / name, digest)
            if state is not None:
                (folder / STATE_FILE).write_text(json.dumps(dataclasses.asdict(state)))
