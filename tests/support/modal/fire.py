"""A run on a plane that is hit: its containers, the process that drives it, the line between."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from tests.modal_plane.plane import ModalPlane
from tests.support.chaos.worker_logs import LINE
from tests.support.modal.project import ON_MODAL
from tests.support.paths import ROOT

CLUSTER = "ActorCluster.*"
ACTOR, ROLLOUT, NODE = "ActorWorker.*", "TransformersRolloutWorker.*", "SingleNodeWorker.*"
SINGLE_NODE = "compute.mode=single_node"
PATIENCE_S = 180.0


class FlowEndedError(Exception):
    """The flow ended before it could be hit again; the message is its output."""


class Fire:
    """One run on the plane and the process that drives it, to be hit; `actor` is the class of the
    containers that train, `driver` the module that is run."""

    def __init__(
        self,
        plane: ModalPlane,
        folder: Path,
        run_id: str,
        *settings: str,
        actor: str = ACTOR,
        driver: str = "tests.support.modal.bare_run",
    ) -> None:
        self.plane = plane
        self._actor = actor
        self.run_dir = folder / "runs" / run_id
        flow = ["-m", driver, str(folder), run_id]
        self._command = [*flow, *ON_MODAL, *settings]
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
        """Return the class's newest container, of a cluster the first, once its log says last that
        it is `doing` that."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            started = self.plane.events("container_started", function=function, rank=0)[-1:]
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
