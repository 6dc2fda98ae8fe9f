"""One case: its three runs, and where they differ."""

from __future__ import annotations

import dataclasses
import json
import shutil
import signal
from collections.abc import Callable, Iterable
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Literal

from tests.support.parity.cases import Case
from tests.support.training_forks import training_forks

Outcome = Literal["equal", "refused", "different", "failed"]

LIMIT_S = 600
"""Seconds after which a process counts as hung."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Trial:
    """What came of a case."""

    case: Case
    outcome: Outcome
    found: str = ""
    """What differed, or why it was refused or failed."""
    num_updates: int = 0
    num_kills: int = 0


BEGUN_ANEW = b"all ranks are begun anew"
"""What a rank says when it ends with another."""


class Failed(Exception):
    """A process ended otherwise than it should."""


def context() -> ForkServerContext:
    """Return processes that are forked off one which has imported torch and TRL."""
    return training_forks()


def attempt(case: Case, folder: Path, processes: ForkServerContext) -> Trial:
    """Make the runs of a case in `folder`, which is removed where they are equal."""
    # Imported where used: the process that counts needs no torch of its own.
    from tests.support.parity import sides

    stock, whole, killed = (folder / name for name in ("stock", "whole", "killed"))
    model, num_kills = folder / "model", 0
    ranks = case.training.get("ranks", 1)
    try:
        _run(processes, sides.stock, case, stock, model, others=range(1, ranks))
        refused = stock / sides.REFUSED
        if refused.exists():
            return Trial(case=case, outcome="refused", found=refused.read_text())
        _run(processes, sides.actor, case, whole, model, None)
        for kill in case.kills:
            num_kills += _run(processes, sides.actor, case, killed, model, kill)
        _run(processes, sides.actor, case, killed, model, None)
    except Failed as error:
        return Trial(case=case, outcome="failed", found=str(error), num_kills=num_kills)
    found = [*_differences("actor", stock, whole), *_differences("killed", whole, killed)]
    num_updates = len(sides.read_updates(stock))
    if not found:
        shutil.rmtree(folder)
    return Trial(
        case=case,
        outcome="different" if found else "equal",
        found="; ".join(found),
        num_updates=num_updates,
        num_kills=num_kills,
    )


def _run(
    processes: ForkServerContext,
    side: Callable[..., None],
    *arguments: Any,
    others: Iterable[int] = (),
) -> bool:
    """Run a side in a process of its own, beside those of its `others`; whether it was killed, or
    ended with a rank that was."""
    process = processes.Process(target=side, args=arguments)
    log = arguments[1] / "log"
    before = log.stat().st_size if log.exists() else 0
    for number in others:
        processes.Process(target=side, args=(*arguments, number), daemon=True).start()
    process.start()
    process.join(LIMIT_S)
    if process.is_alive():
        process.kill()
        process.join()
        raise Failed(f"{side.__name__} took longer than {LIMIT_S} s")
    was_killed = process.exitcode == -signal.SIGKILL or (
        process.exitcode == 1 and BEGUN_ANEW in log.read_bytes()[before:]
    )
    if process.exitcode and not was_killed:
        raise Failed(f"{side.__name__}: {_last_line(log)}")
    return was_killed


def _differences(name: str, one: Path, other: Path) -> list[str]:
    from tests.support.parity import sides

    found = []
    updates = list(zip(sides.read_updates(one), sides.read_updates(other), strict=False))
    if len(sides.read_updates(one)) != len(sides.read_updates(other)):
        found.append(f"{name}: another number of updates")
    parted = [number for number, pair in enumerate(updates, 1) if len(set.union(*pair)) > 1]
    if parted:
        found.append(f"{name}: weights from update {parted[0]} on")
    ends = [json.loads((folder / sides.OUTCOME).read_text()) for folder in (one, other)]
    for part in ends[0]:
        if ends[0][part] != ends[1][part]:
            found.append(f"{name}: {part}")
    return found


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no output"
