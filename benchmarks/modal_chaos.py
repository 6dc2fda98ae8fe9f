"""Runs on a local Modal control plane, hit again and again: do they end with the same bits?

    python -m benchmarks.modal_chaos                       # make chaos-modal
    python -m benchmarks.modal_chaos --blows 12 --seed 3

Containers are killed and preempted in the middle of what their log says that they do, the flow is
killed while it waits for that, the line to Modal is cut. The plane is tests/modal_plane; what it
proves and what not, its README says. Exits with 1 if a run ends with other bits than the one that
nothing happened to, or starts a second actor.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path

from benchmarks.chaos.comparison import Digests, digests
from benchmarks.chaos.worker_logs import LINE
from benchmarks.output import console
from tests.modal_plane.plane import ROOT, ModalPlane

ACTOR, ROLLOUT = "ActorWorker.*", "TransformersRolloutWorker.*"
DOING = {ACTOR: "taking step", ROLLOUT: "sampling"}
NUM_STEPS = 12
SETTINGS = (f"training.max_steps={NUM_STEPS}", "checkpoints.save_steps=3")
ON_MODAL = ("compute.backend=modal", "compute.modal.scaledown_window_s=60")
LONGEST_CUT_S = 10.0
LONGEST_PAUSE_S = 2.0
"""Between two blows, so that they fall on other steps."""
PATIENCE_S = 180.0


class FlowEndedError(Exception):
    """The flow ended before it could be hit again; the message is its output."""


class Fire:
    """One run on the plane and the process that drives it, to be hit; `actor` is the class of the
    containers that train."""

    def __init__(
        self, plane: ModalPlane, folder: Path, run_id: str, *settings: str, actor: str = ACTOR
    ) -> None:
        self.plane = plane
        self._actor = actor
        self.run_dir = folder / "runs" / run_id
        self._command = ["-m", "tests.modal.bare_run", str(folder), run_id, *ON_MODAL, *settings]
        self._output = folder / f"{run_id}.out"
        self._pools = self._actor_pools()
        self.start()

    def start(self) -> None:
        """Drive the run, or go on with it."""
        with self._output.open("ab") as output:
            self._flow = subprocess.Popen(
                [sys.executable, *self._command],
                cwd=ROOT,
                env={**os.environ, **self.plane.env},
                stdout=output,
                stderr=output,
            )

    def kill_flow(self) -> None:
        """SIGKILL; the calls that it waits for go on."""
        self._flow.kill()
        self._flow.wait()

    def wait_while(self, function: str, doing: str) -> str:
        """The class's newest container, once its log says last that it is `doing` that."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            started = self.plane.events("container_started", function=function)[-1:]
            for task in [event["task"] for event in started]:
                ended = self.plane.events("container_ended", task=task)
                if not ended and self._last_word(task).startswith(doing):
                    return str(task)
            if self._flow.poll() is not None:
                raise FlowEndedError(self._output.read_text())
            if time.monotonic() > deadline:
                raise TimeoutError(f"no {function} is {doing}: {self._output.read_text()[-2000:]}")
            time.sleep(0.002)

    def strike(self, function: str, doing: str, blow: Callable[[str], None]) -> bool:
        """Hit a container while it is `doing` that; whether it was not over before."""
        task = self.wait_while(function, doing)
        blow(task)
        self.plane.wait_for("container_ended", task=task)
        return self._last_word(task).startswith(doing)

    def finish(self) -> None:
        """Wait for the end; raises `FlowEndedError` if it is no good one."""
        if self._flow.wait(timeout=PATIENCE_S * 2):
            raise FlowEndedError(self._output.read_text())

    def actors_follow_each_other(self) -> bool:
        """One pool of actors, and each of its containers ended before the next one started."""
        pools = self._actor_pools() - self._pools
        turns = ("container_started", "container_ended")
        kinds = [
            event["kind"]
            for pool in pools
            for event in self.plane.events(function_id=pool)
            if event["kind"] in turns
        ]
        in_turn = all(kind == turn for kind, turn in zip(kinds, cycle(turns), strict=False))
        return len(pools) == 1 and in_turn

    def _actor_pools(self) -> set[str]:
        spawned = self.plane.events("call_spawned", function=self._actor)
        return {str(event["function_id"]) for event in spawned}

    def _last_word(self, task: str) -> str:
        said = LINE.findall(self.plane.log(task))
        return str(said[-1][-1]) if said else ""


def main() -> None:
    parser = argparse.ArgumentParser(description="Runs on a local Modal control plane, hit.")
    parser.add_argument("--blows", type=int, default=40, help="at least so many, over all runs")
    parser.add_argument("--seed", type=int, default=0, help="of the blows")
    args = parser.parse_args()
    rng, hit, faults = random.Random(args.seed), Counter[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="chaos-modal-") as name:
        folder = Path(name)
        options = ("--env", "HF_HUB_OFFLINE=1", "--env", "OMP_NUM_THREADS=1")
        with ModalPlane(folder / "plane", *options) as plane:
            plane.run(sys.executable, "-m", "mortal", "deploy", env={"PREFECT_API_URL": ""})
            whole = _uninterrupted(folder)
            while hit.total() < args.blows:
                run_id = f"hit-{len(list(folder.glob('hit-*.out')))}"
                faults += _under_fire(plane, folder, run_id, whole, rng, hit, args.blows)
    for what, times in sorted(hit.items()):
        console.print(f"{times:4}  {what}")
    console.print("\n".join(faults) or f"{hit.total()} blows: every run ended with the same bits")
    sys.exit(1 if faults else 0)


def _uninterrupted(folder: Path) -> Digests:
    command = [sys.executable, "-m", "tests.modal.bare_run", str(folder), "whole", *SETTINGS]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return digests(folder / "runs/whole", NUM_STEPS)


def _under_fire(
    plane: ModalPlane,
    folder: Path,
    run_id: str,
    whole: Digests,
    rng: random.Random,
    hit: Counter[str],
    most: int,
) -> list[str]:
    """Drive a run to its end, hitting it all the way; what is wrong with it then."""
    fire = Fire(plane, folder, run_id, *SETTINGS)
    try:
        while hit.total() < most:
            hit[_hit(fire, rng)] += 1
            time.sleep(rng.uniform(0, LONGEST_PAUSE_S))
    except FlowEndedError:
        pass  # at its end, or finish() says how
    fire.finish()
    fetch = ["fetch", run_id, "--runs-dir", str(folder / "fetched"), "--all"]
    plane.run(sys.executable, "-m", "mortal", *fetch)
    found = digests(folder / "fetched" / run_id, NUM_STEPS)
    faults = [f"{run_id}: other {name}" for name in whole if found[name] != whole[name]]
    if not fire.actors_follow_each_other():
        faults.append(f"{run_id}: a second actor")
    console.print(f"{run_id}: {hit.total()} blows so far, {'; '.join(faults) or 'the same bits'}")
    return faults


def _hit(fire: Fire, rng: random.Random) -> str:
    """One blow; what it was, and whether it came in time."""
    function = rng.choice([ACTOR, ROLLOUT])
    blows: Mapping[str, Callable[[str], None]] = {
        "killed": fire.plane.kill,
        "preempted": fire.plane.preempt,
    }
    how = rng.choice([*blows, "flow killed", "line cut"])
    doing = DOING[function]
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
