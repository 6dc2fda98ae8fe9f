"""What must be the same in two runs, as digests; and what a run's own records say of lost work.

Left out, because it is no result: when things happened (timings.jsonl, `timing` in records and the
journal), and how often the calls of a reward function failed, which a killed host counts as
(`failed_calls` in the ledger, `rewards/<function>/failed_calls` in the metrics).
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.store import RunStore
from mortal_steps.store.records import KINDS, Content, shard_files
from tests.support.chaos.worker_logs import Event, Kind

Digests = Mapping[str, str]


def digests(run_dir: Path, num_steps: int) -> Digests:
    """sha256 of each thing that a run leaves, by name."""
    state = run_dir / "checkpoints" / f"step-{num_steps}"
    results = [_record(path) for path in sorted(run_dir.glob("steps/*/result.json"))]
    return {
        "final model": _of(_files(run_dir / "final")),
        "optimizer and scheduler": _of(_files(state)),
        "random streams": _of([result["random_sha256"] for result in results]),
        "states": _of([[result["step"], result["state_id"]] for result in results]),
        **{name: _of(content) for name, content in _learned_from(run_dir)},
        "metrics": _of(_rows(run_dir / "metrics.jsonl")),
        "evaluations": _of(_rows(run_dir / "evaluations.jsonl")),
        **{log.stem: _of(_rows(log)) for log in run_dir.glob("selections.jsonl")},
    }


def _learned_from(run_dir: Path) -> Iterator[tuple[str, Any]]:
    """What the model learned from: the order of rows, or completions and their rewards."""
    if (run_dir / "orders").exists():
        committed = sorted(run_dir.glob("orders/[0-9]*"))
        yield "orders", [(path.name, _record(path)) for path in committed]
        return
    yield "generations", _ledger(run_dir, "generations")
    yield "rewards", _ledger(run_dir, "rewards")


def _of(content: Any) -> str:
    if not isinstance(content, list):
        content = list(content)
    if not content:
        raise ValueError("there is nothing to compare")
    told = json.dumps(content, sort_keys=True, default=_plain)
    return hashlib.sha256(told.encode()).hexdigest()


def _plain(value: array[Any] | bytes) -> Any:
    return value.hex() if isinstance(value, bytes) else value.tolist()


def _files(folder: Path) -> Iterator[tuple[str, str]]:
    """Name and digest of each file."""
    for path in sorted(folder.iterdir()):
        yield path.name, hashlib.sha256(path.read_bytes()).hexdigest()


def _ledger(run_dir: Path, wanted: Content) -> Iterator[tuple[str, Any]]:
    """Every record of a kind, training and evaluation."""
    store = RunStore(run_dir)
    for folder in ("steps", "evaluations"):
        for place in sorted(run_dir.glob(f"{folder}/*")):
            for path, content in shard_files(place):
                name = str(path.relative_to(run_dir))
                found = store.find_record(name, KINDS[content]) if content == wanted else None
                if found is not None:
                    yield name, _without_failures(dataclasses.asdict(found[1]))


def _rows(log: Path) -> Iterator[Mapping[str, Any]]:
    for line in log.read_text().splitlines():
        yield _without_failures(json.loads(line))


def _record(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text().splitlines()[1]))


def _without_failures(row: Mapping[str, Any]) -> Mapping[str, Any]:
    return {key: value for key, value in row.items() if not key.endswith("failed_calls")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """Optimizer steps and completions: what was lost, doubled or made again."""

    lost: int
    """Train steps without a result or a line of metrics."""
    doubled: int
    """Train steps that count more than once, in the metrics or in the optimizer."""
    replayed: int
    """Train steps computed again to restore a state, or because a kill cut them off."""
    sampled: int
    """Completions sampled, the first time."""
    sampled_again: int
    in_flight: int
    """Completions of shards that were being sampled when their worker, or its environments, were
    killed."""
    scored: int
    """Shards scored, by rewards or teachers, the first time."""
    scored_again: int
    scoring: int
    """Shards that were being scored when their worker was killed."""
    needlessly: tuple[str, ...]
    """Files of shards that were sampled or scored again although they had been committed."""


def work_of(run_dir: Path, events: list[Event], num_steps: int, updates_per_step: int) -> Work:
    """Return what the run's records and its workers' logs say."""
    results = {result["step"]: result for result in _records(run_dir, "steps/*/result.json")}
    lines = [row["step"] for row in _rows(run_dir / "metrics.jsonl")]
    missing = {step for step in range(num_steps) if step not in results or step + 1 not in lines}
    updates = [result["optimizer_steps"] for _, result in sorted(results.items())]
    wanted = [(step + 1) * updates_per_step for step in sorted(results)]
    surplus = sum(found > due for found, due in zip(updates, wanted, strict=True))
    taken = [event for event in events if event.kind in ("taking", "replaying")]
    sizes = {
        name: sum(len(group["completions"]) for group in body["groups"])
        for name, body in _ledger(run_dir, "generations")
    }
    attempts, cut_off, needlessly = attempts_of(events, "sampling")
    scorings, scoring, needless = attempts_of(events, "scoring")
    return Work(
        lost=len(missing),
        doubled=len(lines) - len(set(lines)) + surplus,
        replayed=len(taken) - num_steps,
        sampled=sum(sizes.values()),
        sampled_again=sum(sizes[name] * (count - 1) for name, count in attempts.items()),
        in_flight=sum(sizes[name] * count for name, count in cut_off.items()),
        scored=len(scorings),
        scored_again=sum(scorings.values()) - len(scorings),
        scoring=sum(scoring.values()),
        needlessly=(*needlessly, *needless),
    )


def attempts_of(
    events: list[Event], kind: Kind
) -> tuple[dict[str, int], dict[str, int], list[str]]:
    """Return by shard how often it was sampled or scored, as `kind` says, and how often its worker
    was killed meanwhile; and the shards done once more after that had succeeded."""
    attempts: dict[str, int] = {}
    cut_off: dict[str, int] = {}
    done: set[str] = set()
    needlessly = []
    open_session: dict[str, str] = {}
    for event in events:
        if event.kind == kind:
            attempts[event.name] = attempts.get(event.name, 0) + 1
            open_session[event.worker] = event.name
            if event.name in done:
                needlessly.append(event.name)
        elif event.kind == "ends" and event.worker in open_session:
            done.add(open_session.pop(event.worker))
        elif event.kind in ("started", "fails") and event.worker in open_session:
            name = open_session.pop(event.worker)
            cut_off[name] = cut_off.get(name, 0) + 1
    return attempts, cut_off, needlessly


def _records(run_dir: Path, pattern: str) -> Iterator[dict[str, Any]]:
    return (_record(path) for path in sorted(run_dir.glob(pattern)))
