"""The status of a run, read from little: for lists that are looked at again and again."""

import itertools
import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mortal_steps.environments.processes.waiting import waiting_in
from mortal_steps.report.units import duration
from mortal_steps.runs.lease import read_lease
from mortal_steps.runs.manifest import MANIFEST_FILE, learns_without_rewards
from mortal_steps.runs.recipe_of import recipe_of, resume_argument
from mortal_steps.runs.run import Run
from mortal_steps.runs.waits import waits
from mortal_steps.scores import mean_of

logger = logging.getLogger(__name__)

REWARD_WINDOW = 20
"""Steps over which training rewards are averaged."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunStatus:
    """What is known of a run without reading its logs as a whole."""

    run_id: str
    status: str
    """created, running, completed, failed, stopped; interrupted: running, but by no process."""
    step: int
    """Train steps done."""
    max_steps: int
    """Train steps of the whole run."""
    reward: float | None
    """Mean training reward of the last 20 steps."""
    held_out: float | None
    """Reward of the last evaluation."""
    loss: float | None
    """Mean training loss of the last 20 steps, where rows of a dataset are learned."""
    held_out_loss: float | None
    """Loss of the last evaluation, where that is the loss on held-out rows."""
    pace_s: float | None
    """Seconds per step, where a process trains it."""
    eta_s: float | None
    """Seconds to the last step at that pace."""
    waits_for: str
    """The command that it needs to go on; empty where it needs none."""
    created_at: float
    """Seconds since the epoch; a fork's own."""
    updated_at: float
    """When it last noted how far it is."""
    pid: int | None
    """The process on this machine that drives it."""
    checkpoints: list[int]
    best_step: int | None
    error: str | None
    """Why it ended early."""
    waiting: Sequence[str] = ()
    """What its shards wait for, such as `generate 12/0: round 3, 2 of 64 episodes in tool search
    for 41 s`, known on the machine of its workers; and what its workers do before they start."""


def status_of(run: Run, volume: str | None = None) -> RunStatus:
    """Read the end of the log, the manifest, and what the driver says. `volume`: the Modal Volume
    that `run` is a copy from, whose pace is not known here."""
    manifest, status = run.manifest, run.status()
    judged = manifest.evaluation.metrics if manifest.evaluation else {}
    rows = run.metrics()[-REWARD_WINDOW:]
    pace_s = manifest.pace_s if status == "running" else None
    begun = run.store.path(MANIFEST_FILE).exists()
    there = volume and f"{recipe_of(run.store.root) or run.info.run_id} --volume {volume}"
    resume = f"mortal resume {there or resume_argument(run.store.root)}"
    return RunStatus(
        run_id=run.info.run_id,
        status=status,
        step=manifest.step,
        max_steps=run.num_steps,
        reward=mean_of(row["reward"] for row in rows),
        held_out=judged.get("reward"),
        loss=mean_of(row.get("loss") for row in rows if learns_without_rewards(row)),
        held_out_loss=None if "reward" in judged else judged.get("loss"),
        pace_s=pace_s,
        eta_s=None if pace_s is None else pace_s * (run.num_steps - manifest.step),
        waits_for=resume if status in ("interrupted", "stopped", "failed") else "",
        created_at=run.info.created_at,
        updated_at=manifest.updated_at if begun else run.info.created_at,
        pid=_driver(run) if status == "running" else None,
        checkpoints=[checkpoint.step for checkpoint in manifest.checkpoints],
        best_step=manifest.best_step,
        error=manifest.error,
        waiting=_waiting(run) if status == "running" else (),
    )


def _waiting(run: Run) -> list[str]:
    """Return what workers that start and shards that are made now wait for, a line each."""
    done, lines = run.manifest.step, waits(run.store)
    begun = itertools.takewhile(
        lambda step: run.store.path(f"steps/{step:06d}").exists(), itertools.count(done)
    )
    stages = [("generate", "steps", step) for step in begun]
    for stage, folder, step in (*stages, ("evaluate", "evaluations", done)):
        for shard, found in waiting_in(run.store.path(f"{folder}/{step:06d}")).items():
            where = f"round {found.round}, " if found.round else ""
            episodes = f"{found.num_waiting} of {found.num_episodes} episodes in {found.named}"
            seconds = duration(time.time() - found.since)
            lines.append(f"{stage} {step}/{shard}: {where}{episodes} for {seconds}")
    return lines


def _driver(run: Run) -> int | None:
    lease = read_lease(run.store)
    return lease.pid if lease and lease.is_here() and lease.holds() else None


def statuses(runs: Iterable[Run]) -> list[RunStatus]:
    """Return the status of each run that can be read; one that cannot is only warned of."""
    found = []
    for run in runs:
        try:
            found.append(status_of(run))
        except OSError as error:
            logger.warning("run %s cannot be read: %s", run.info.run_id, error)
    return found
