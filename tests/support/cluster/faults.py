"""What befalls a Ray cluster and a run's workers on it, as victims of `tests.support.chaos`."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import ClassVar

from tests.support.chaos.processes import CONTAINER
from tests.support.cluster.nodes import Cluster, below, command_of, output_of

AWAY_S = 5.0
"""Until somebody starts a machine anew."""
STOPPED_S = 40.0
"""Longer than it takes until Ray gives such a machine up."""
ENDS_WITHIN_S = 15.0


class Fault:
    """One kind of fault. While what it broke is mended, no other one of the cluster happens."""

    mending: threading.Thread | None = None
    unmended: ClassVar[list[str]] = []
    """What went wrong there."""

    def __init__(self, hit: Callable[[], Callable[[], None] | None]) -> None:
        """`hit` returns how to mend it, where that takes somebody."""
        self._hit = hit
        self._mend: Callable[[], None] | None = None

    def kill(self) -> None:
        self._mend = self._hit()

    def come_back(self) -> None:
        if self._mend is not None:
            Fault.mending = threading.Thread(target=self._mended, daemon=True)
            Fault.mending.start()

    def _mended(self) -> None:
        assert self._mend is not None
        try:
            self._mend()
        except Exception as error:  # noqa: BLE001 - the boundary of a thread
            Fault.unmended.append(f"{type(error).__name__}: {error}")

    @property
    def away(self) -> bool:
        return Fault.mending is not None and Fault.mending.is_alive()

    def wait(self) -> None:
        if Fault.mending is not None:
            Fault.mending.join()


def faults_of(cluster: Cluster, worker: str) -> Mapping[str, Fault]:
    """Return what can happen to a worker on the cluster, by name."""

    def kill_process() -> None:
        os.kill(cluster.find_worker(worker)[1], signal.SIGKILL)

    def kill_node_process() -> None:
        supervisor = _parent(cluster.find_worker(worker)[1])
        os.kill(_parent(supervisor), signal.SIGKILL)

    def kill_bridge() -> None:
        os.kill(bridge_of(worker), signal.SIGKILL)

    def stop_bridge() -> None:
        os.kill(bridge_of(worker), signal.SIGSTOP)

    def kill_machine() -> Callable[[], None]:
        ip, _ = cluster.find_worker(worker)
        cluster.kill(ip)
        return lambda: _start_later(cluster, ip)

    def stop_machine() -> Callable[[], None]:
        ip, _ = cluster.find_worker(worker)
        stopped = cluster.processes(ip, "")
        return _stop(cluster, ip, stopped)

    def stop_raylet() -> Callable[[], None]:
        ip, _ = cluster.find_worker(worker)
        return _stop(cluster, ip, cluster.processes(ip, "raylet/raylet "))

    return {
        f"process of {worker}": Fault(kill_process),
        f"node process of {worker}": Fault(kill_node_process),
        f"bridge of {worker}": Fault(kill_bridge),
        f"stopped bridge of {worker}": Fault(stop_bridge),
        f"machine of {worker}": Fault(kill_machine),
        f"stopped machine of {worker}": Fault(stop_machine),
        f"stopped raylet of {worker}": Fault(stop_raylet),
    }


def lost_head(cluster: Cluster) -> Fault:
    """The head is killed, and all nodes are started anew."""

    def kill_head() -> Callable[[], None]:
        cluster.kill_head()
        return cluster.start_anew

    return Fault(kill_head)


def bridge_of(worker: str) -> int:
    """Return the bridge of a worker of the run that this process has started."""
    for pid in below(os.getpid()):
        path = output_of(pid)
        if (path.parent.name, path.stem) == ("cluster", worker) and _is_below_supervisor(pid):
            return pid
    raise LookupError(f"{worker} has no bridge")


def _is_below_supervisor(pid: int) -> bool:
    named = CONTAINER.decode()
    return named in command_of(pid) and named in command_of(_parent(pid))


def _start_later(cluster: Cluster, ip: str) -> None:
    time.sleep(AWAY_S)
    cluster.start_node(ip)


def _stop(cluster: Cluster, ip: str, processes: list[int]) -> Callable[[], None]:
    """Stop processes of a node. Once they go on, the workers there are to end by themselves: they
    have been replaced."""
    for pid in processes:
        os.kill(pid, signal.SIGSTOP)

    def go_on() -> None:
        time.sleep(STOPPED_S)
        for pid in processes:
            os.kill(pid, signal.SIGCONT)
        deadline = time.monotonic() + ENDS_WITHIN_S
        while cluster.processes(ip, CONTAINER.decode()):
            if time.monotonic() > deadline:
                raise RuntimeError(f"a worker on {ip} goes on that was replaced")
            time.sleep(0.1)
        cluster.kill(ip)
        cluster.start_node(ip)

    return go_on


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
