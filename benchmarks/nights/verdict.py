"""Judges the nights: what each of them left, compared with the same night without faults."""

import dataclasses
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.jobs import ask
from benchmarks.nights.cluster import Cluster
from benchmarks.nights.night import ENDED, Night, flow_runs
from benchmarks.nights.plan import HEAVY
from benchmarks.nights.project import NAME, settings, write_project
from benchmarks.nights.receiver import Received
from mortal_steps.registry.registry import ModelVersion, Registry, in_use
from mortal_steps.runs.run import Run, find_run
from mortal_steps.runs.verify import check_run
from tests.support.chaos.comparison import digests, work_of
from tests.support.chaos.worker_logs import read_events
from tests.support.undisturbed import undisturbed

PROMOTED_WITHIN_S = 180.0
NOTICED_WITHIN_S = 60.0
SUBJECTS = {
    "collapse": ("reward collapsed", "evaluation regressed"),
    "regression": ("evaluation regressed",),
}
"""What a notice of what was planted is about. A reward that collapses before the first mean of ten
steps is noticed by the evaluation alone."""
AWAY = re.compile(r"server away: steps? (\d+)(?:-(\d+))?")
"""Name of the task run that stands for steps that were trained while the server was away."""
OUT_OF_REACH = ("server", "stalled line", "cut line")
TOLD_WITHIN_S = 15.0
"""In which a process tells a server that is there again what it kept."""
UNFINISHED = {"PENDING", "RUNNING", "SCHEDULED", "PAUSED", "CANCELLING"}
REFERENCES_AT_ONCE = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A night, judged."""

    night: Night
    lost: int
    doubled: int
    differs: tuple[str, ...]
    """What is not as in the quiet place."""
    held_out: tuple[float, float]
    """Reward before the first step and after the last."""
    notice_s: float | None
    """From when the planted change showed to when the notice of it was received."""
    promotion: str
    """promoted, refused, or what else came of it."""
    task_runs: int
    """Task runs of the night in Prefect's database."""
    holes: tuple[str, ...]
    """Stages that the database does not know as Completed, and task runs that never ended. A
    machine that loses its power takes along what the server had not written down yet."""
    faults: tuple[str, ...]
    """What is not as it should be; empty if nothing."""


def judged(
    cluster: Cluster, nights: Sequence[Night], promotions: Mapping[str, str], folder: Path
) -> list[Verdict]:
    """Each night beside its quiet one, which is trained now."""
    with ThreadPoolExecutor(REFERENCES_AT_ONCE) as pool:
        quiet = pool.map(lambda night: _quiet(cluster, night, folder), nights)
        return [
            _judged(cluster, night, whole, promotions)
            for night, whole in zip(nights, quiet, strict=True)
        ]


def wait_for_promotion(cluster: Cluster, night: Night, deployment: str) -> str:
    """Return what its own flow run decided about the night's model."""
    deadline = time.monotonic() + PROMOTED_WITHIN_S
    state = "nothing asked for it"
    while time.monotonic() < deadline:
        for each in flow_runs(cluster, deployment):
            if each["parameters"]["run_id"] != night.run_id:
                continue
            state = str(each["state"]["message"] or each["state"]["name"])
            if each["state"]["type"] in ENDED:
                return state
        time.sleep(1.0)
    return state


def _judged(
    cluster: Cluster, night: Night, whole: Mapping[str, Any], promotions: Mapping[str, str]
) -> Verdict:
    run = find_run(cluster.runs, night.run_id)
    root, steps = run.store.root, run.info.num_steps
    updates = run.config.training.optimizer_steps_per_batch
    work = work_of(root, read_events(root / "logs"), steps, updates)
    ended = night.state == "COMPLETED"
    found = digests(root, steps) if ended else {}
    differs = [name for name, digest in whole["digests"].items() if found.get(name) != digest]
    history = [(each["name"], each["state_type"]) for each in _task_runs(cluster, night.run_id)]
    received = [each for each in cluster.receiver.received if night.run_id in each.subject]
    evaluations = [row["reward"] for row in run.logs.read("evaluations.jsonl")]
    holes = tuple(_holes(history, steps, run.config.num_shards, _untold(night)))
    said = promotions[night.run_id]
    verdict = Verdict(
        night=night,
        lost=work.lost,
        doubled=work.doubled,
        differs=tuple(differs),
        held_out=(evaluations[0], evaluations[-1]),
        notice_s=_notice_s(night, received),
        promotion=said,
        task_runs=len(history),
        holes=holes,
        faults=(),
    )
    files = check_run(cluster.runs, night.run_id).files
    damaged = [f"{file.path} {file.damage}" for file in files if file.damage]
    return _with_faults(verdict, damaged)


def _with_faults(verdict: Verdict, damaged: Sequence[str]) -> Verdict:
    night = verdict.night
    faults = [
        *([f"ended {night.state}"] if night.state != "COMPLETED" else []),
        *([f"{verdict.lost} steps lost"] if verdict.lost else []),
        *([f"{verdict.doubled} steps doubled"] if verdict.doubled else []),
        *(f"other {name} than undisturbed" for name in verdict.differs),
        *([] if "machine" in [each.fault for each in night.struck] else verdict.holes),
        *damaged,
        *_wrong_promotion(verdict),
        *_wrong_notice(verdict),
    ]
    return dataclasses.replace(verdict, faults=tuple(faults))


def _wrong_promotion(verdict: Verdict) -> Iterator[str]:
    wanted = "promoted" if verdict.night.plan.kind == "good" else "refused"
    if not verdict.promotion.startswith(wanted):
        yield f"should have been {wanted}: {verdict.promotion}"


def _wrong_notice(verdict: Verdict) -> Iterator[str]:
    if verdict.night.plan.kind == "good":
        return
    if verdict.notice_s is None:
        yield "no notice of what was planted"
    elif verdict.notice_s > NOTICED_WITHIN_S:
        yield f"the notice came after {verdict.notice_s:.0f} s"


def _notice_s(night: Night, received: Sequence[Received]) -> float | None:
    about = SUBJECTS.get(night.plan.kind, ())
    found = [each.at for each in received if any(one in each.subject for one in about)]
    if not found or night.visible_at is None:
        return None
    return found[0] - night.visible_at


def _task_runs(cluster: Cluster, run_id: str) -> Iterator[Mapping[str, Any]]:
    offset = 0
    wanted = {"flow_runs": {"tags": {"all_": [f"run:{run_id}"]}}, "sort": "ID_DESC"}
    while page := cluster.ask("POST", "/task_runs/filter", {**wanted, "offset": offset}):
        yield from page
        offset += len(page)


def _untold(night: Night) -> set[int]:
    """Return the steps that the server was not told of, for the process was killed before it had
    sent what it kept while the server was out of reach."""
    steps: set[int] = set()
    for cut in night.struck:
        if cut.fault in OUT_OF_REACH:
            heard_at = cut.at + cut.lasted_s + TOLD_WITHIN_S
            ends = [e.step for e in night.struck if e.fault in HEAVY and cut.at <= e.at <= heard_at]
            steps |= {step for end in ends for step in range(cut.step, end + 1)}
    return steps


def _holes(
    history: Sequence[tuple[str, str]], steps: int, num_shards: int, untold: set[int]
) -> Iterator[str]:
    """Find what the history lacks but `untold`. A stage that a kill has cut off is there twice:
    Crashed, and Completed later. Of steps that were trained while the server was away, a bar tells
    that."""
    told = {step for name, _ in history for step in _away(name)} | untold
    completed = {name for name, state in history if state == "COMPLETED"}
    shards = [f"{step}/{shard}" for step in range(steps) for shard in range(num_shards)]
    wanted = [
        *(f"{stage}/{step}" for stage in ("get_batch", "train_step") for step in range(steps)),
        *(f"{stage}/{shard}" for stage in ("generate", "reward") for shard in shards),
    ]
    missing = [name for name in wanted if name not in completed and _step(name) not in told]
    if missing:
        yield f"{len(missing)} stages are not in the history: {', '.join(missing)}"
    unfinished = [name for name, state in history if state in UNFINISHED]
    if unfinished:
        yield f"{len(unfinished)} task runs never ended: {', '.join(unfinished)}"


def _away(name: str) -> range:
    """Return the steps that a bar says the server was told nothing of."""
    found = AWAY.fullmatch(name)
    return range(int(found[1]), int(found[2] or found[1]) + 1) if found else range(0)


def _step(stage: str) -> int:
    """Return the step of a stage, such as 7 of `generate/7/0`."""
    return int(stage.split("/")[1])


def _began_with(cluster: Cluster, run: Run) -> ModelVersion:
    """Return the version whose files the night began with."""
    registry = Registry(cluster.project / "models", NAME)
    for version in in_use(registry.history()):  # of which several may have the same weights
        if run.config.model.name_or_path.endswith(f"/{version.path}"):
            return version
    raise RuntimeError(f"{run.info.run_id} began with no model that was in production")


def train_quietly(job: Mapping[str, Any]) -> dict[str, Any]:
    """Train a night once more, without Prefect, in this process: nothing happens to it. Return the
    digests of what that leaves."""
    folder = Path(job["folder"])
    (folder / "tiny.toml").write_text(job["config"])
    run = undisturbed(folder)
    return {"digests": dict(digests(run.store.root, run.info.num_steps))}


def _quiet(cluster: Cluster, night: Night, folder: Path) -> Mapping[str, Any]:
    place = folder / f"quiet-{night.plan.number}"
    place.mkdir()
    write_project(place, cluster.judge.url)
    registry = Registry(cluster.project / "models", NAME)
    version = _began_with(cluster, find_run(cluster.runs, night.run_id))
    link = place / "models" / NAME / "production"
    same = link.parent / version.path  # by which its run is told from one with another model
    same.parent.mkdir(parents=True)
    same.symlink_to(registry.store.path(version.path).absolute())
    link.symlink_to(version.path)
    job = {"folder": str(place), "config": settings(night.plan.steps, night.plan.kind)}
    found: Mapping[str, Any] = ask("nights.verdict:train_quietly", job)
    return found
