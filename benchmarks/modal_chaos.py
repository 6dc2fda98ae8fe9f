"""Runs on a local Modal control plane, hit again and again: do they end with the same bits?

    python -m benchmarks.modal_chaos                       # make chaos-modal
    python -m benchmarks.modal_chaos --blows 12 --seed 3

Containers are killed and preempted in the middle of what their log says that they do, the flow is
killed while it waits for that, the line to Modal is cut. Every second run is in single-node mode.
The plane is tests/modal_plane; what it proves and what not, its README says. Exits with 1 if a run
ends with other bits than the one that nothing happened to, or starts a second actor.
"""

import argparse
import itertools
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.output import console, folder_for
from tests.modal_plane.plane import ModalPlane
from tests.support.chaos.comparison import Digests, digests
from tests.support.modal.fire import ACTOR, NODE, ROLLOUT, SINGLE_NODE, Fire, FlowEndedError
from tests.support.modal.sources import hidden_sources
from tests.support.paths import ROOT

APART = ((ACTOR, "taking step"), (ROLLOUT, "sampling"))
ON_A_NODE = ((NODE, "taking step"), (NODE, "sampling"))
"""Whom to hit, and while it does what."""
NUM_STEPS = 12
SETTINGS = (f"training.max_steps={NUM_STEPS}", "checkpoints.save_steps=3")
LONGEST_CUT_S = 10.0
LONGEST_PAUSE_S = 2.0
"""Between two blows, so that they fall on other steps."""


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs on a local Modal control plane, hit.")
    parser.add_argument("--blows", type=int, default=40, help="at least so many, over all runs")
    parser.add_argument("--seed", type=int, default=0, help="of the blows")
    args = parser.parse_args()
    rng, hit, faults = random.Random(args.seed), Counter[str](), list[str]()
    with folder_for("chaos-modal") as folder:
        options = ("--env", "HF_HUB_OFFLINE=1", "--env", "OMP_NUM_THREADS=1")
        with ModalPlane(folder / "plane", *hidden_sources(), *options) as plane:
            plane.run(sys.executable, "-m", "mortal", "deploy", env={"PREFECT_API_URL": ""})
            whole = _uninterrupted(folder)
            for number in itertools.count():
                if hit.total() >= args.blows:
                    break
                node = bool(number % 2)
                fire = _light(plane, folder, f"hit-{number}", node=node)
                faults += _under_fire(fire, folder, whole, rng, hit, args.blows, node=node)
    for what, times in sorted(hit.items()):
        console.print(f"{times:4}  {what}")
    console.print("\n".join(faults) or f"{hit.total()} blows: every run ended with the same bits")
    sys.exit(1 if faults else 0)


def _uninterrupted(folder: Path) -> Digests:
    command = ["-m", "tests.support.modal.bare_run", str(folder), "whole", *SETTINGS]
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    return digests(folder / "runs/whole", NUM_STEPS)


def _light(plane: ModalPlane, folder: Path, run_id: str, *, node: bool) -> Fire:
    if node:
        return Fire(plane, folder, run_id, *SETTINGS, SINGLE_NODE, actor=NODE)
    return Fire(plane, folder, run_id, *SETTINGS)


def _under_fire(
    fire: Fire,
    folder: Path,
    whole: Digests,
    rng: random.Random,
    hit: Counter[str],
    most: int,
    *,
    node: bool,
) -> list[str]:
    """Hit a run all the way to its end; what is wrong with it then."""
    run_id = fire.run_dir.name
    try:
        while hit.total() < most:
            hit[_hit(fire, rng, *rng.choice(ON_A_NODE if node else APART))] += 1
            time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
    except FlowEndedError:
        pass  # at its end, or finish() says how
    fire.finish()
    fetch = ["fetch", run_id, "--runs-dir", str(folder / "fetched"), "--all"]
    fire.plane.run(sys.executable, "-m", "mortal", *fetch)
    found = digests(folder / "fetched" / run_id, NUM_STEPS)
    faults = [f"{run_id}: other {name}" for name in whole if found[name] != whole[name]]
    if not fire.actors_follow_each_other():
        faults.append(f"{run_id}: a second actor")
    console.print(f"{run_id}: {hit.total()} blows so far, {'; '.join(faults) or 'the same bits'}")
    return faults


def _hit(fire: Fire, rng: random.Random, function: str, doing: str) -> str:
    """One blow; what it was, and whether it came in time."""
    blows: Mapping[str, Callable[[str], None]] = {
        "killed": fire.plane.kill,
        "preempted": fire.plane.preempt,
    }
    how = rng.choice([*blows, "flow killed", "line cut"])
    if how in blows:
        inside = fire.strike(function, doing, blows[how])
        return f"{function.removesuffix('.*')} {how}, {'' if inside else 'not '}{doing}"
    fire.wait_while(function, doing)
    if how == "flow killed":
        fire.kill_flow()
        fire.start()
    else:
        fire.plane.drop_connections(rng.uniform(1, LONGEST_CUT_S))
    return f"{how} while {doing}"


if __name__ == "__main__":
    main()
