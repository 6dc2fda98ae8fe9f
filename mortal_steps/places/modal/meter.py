"""What a run costs on Modal: seconds of its containers by the price of what they reserve.

    costs.jsonl   {"step": 12, "stage": "train_step", "role": "actor", "kind": "useful",
                   "container": "ta-1", "seconds": 3.1, "dollars": 0.0018}

| kind | seconds |
|---|---|
| `start_up` | from a container's start until it was ready |
| `idle` | waiting for a call, and after the last one |
| `useful` | in calls that gave what was asked for |
| `repeated` | in calls that failed or were lost, whose work somebody does again |

An estimate: containers tell their own times, and one that is lost takes with it those of its last
call. The Sandbox of a rollout worker's environments (`[compute.modal.environment]`) is counted with
its container, behind its start: it is made for the first shard, and ends with the worker. The file
grows through every attempt of a run; what was paid is never cut back to a step.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from mortal_steps.compute.base import ROLES, Role
from mortal_steps.config import ComputeConfig
from mortal_steps.config.gpus import gpu_count, modal_gpu
from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.messages import CallResult
from mortal_steps.runs.costs import COSTS, read_costs
from mortal_steps.runs.logs import append_lines
from mortal_steps.store import RunStore
from mortal_steps.store.files import writing

DOLLARS_PER_SECOND = {
    "T4": 0.000164,
    "L4": 0.000222,
    "A10": 0.000306,
    "L40S": 0.000542,
    "A100": 0.000583,
    "A100-40GB": 0.000583,
    "A100-80GB": 0.000694,
    "H100": 0.001097,
    "H100!": 0.001097,
    "H200": 0.001261,
    "B200": 0.001736,
}
"""List prices of July 2026 of the GPUs alone. Those of an account may differ: `compute.modal.rates`
goes before them."""

CORE = 0.0000131
"""Dollars per second of a physical core that a container reserves."""
GIBIBYTE = 0.0000022
"""Dollars per second of a GiB of memory that it reserves."""
SANDBOX_CORE, SANDBOX_GIBIBYTE = 0.00003942, 0.00000672
"""The same of a Sandbox."""
START = "start_workers"
"""The stage before a worker's first shard."""


class Meter:
    """Counts what one run has cost, over all its attempts."""

    def __init__(self, store: RunStore, compute: ComputeConfig, actor_containers: int = 1) -> None:
        self._path = store.path(COSTS)
        self._rates = {role: container_rate(compute, role) for role in ROLES}
        self._rates["actor"] *= actor_containers  # the first one answers for all
        self._sandbox_rates = {role: sandbox_rate(compute, role) for role in ROLES}
        self.spent: float = sum(row["dollars"] for row in read_costs(self._path))
        """Dollars so far."""
        self._open: dict[str, tuple[Role, str, float]] = {}
        """Role and last call of each container of this attempt, and when it was answered."""
        self._serving: dict[str, str] = {}
        """The container of each worker, which has one at a time: the one that answered last."""
        self._counted: dict[str, float] = {}
        """Seconds of containers since their last answer that are counted, for a call was lost."""

    def answered(self, worker: str, role: Role, label: str, result: CallResult) -> None:
        times = result.times
        if times is None:
            return
        before = self._serving.get(worker)
        if before is not None and before != times.container:
            self._open.pop(before, None)  # it is gone, for this one has its place
        kind = "repeated" if result.error is not None else "useful"
        idle = max(0.0, times.idle_s - self._counted.pop(times.container, 0.0))
        seconds = {"start_up": times.startup_s, "idle": idle, kind: times.busy_s}
        self._note(role, label, times.container, seconds)
        self._open[times.container] = (role, label, time.monotonic())
        self._serving[worker] = times.container

    def lost(self, worker: str, role: Role, label: str, seconds: float) -> None:
        """Note that a worker's call was lost, so long after it was submitted. Its container is
        gone, as a rule; if it answers another call, that tells the same seconds as idle ones."""
        container = self._serving.pop(worker, "")
        known = self._open.pop(container, None)
        idle = 0.0 if known is None else max(0.0, time.monotonic() - seconds - known[2])
        self._note(role, label, container, {"idle": idle, "repeated": seconds})
        self._counted[container] = self._counted.get(container, 0.0) + idle + seconds

    def ended(self, window_s: float) -> None:
        """Note that the run needs its containers no more; each stays for so long."""
        for container, (role, label, since) in self._open.items():
            self._note(role, label, container, {"idle": time.monotonic() - since + window_s})
        self._open.clear()

    def _note(self, role: Role, label: str, container: str, seconds: Mapping[str, float]) -> None:
        stage, step = _call_of(label)
        call = {"step": step, "stage": stage, "role": role, "container": container}
        rows = []
        for kind, took in seconds.items():
            if took > 0:
                rate = self._rates[role]
                if kind != "start_up" and stage != START:
                    rate += self._sandbox_rates[role]
                dollars = took * rate
                self.spent += dollars
                rows.append({**call, "kind": kind, "seconds": took, "dollars": dollars})
        with writing(self._path):
            append_lines(self._path, rows)


def _call_of(label: str) -> tuple[str, int]:
    """Stage and step of a call such as `train_step/12/0`; `start` makes a worker ready."""
    if "/" not in label:
        return START, 0
    stage, step, _ = label.split("/")
    return stage, int(step)


def dollars_per_second(wanted: str, rates: Mapping[str, float]) -> float:
    """Return these GPUs' price; `rates` by GPU, however spelt, go before the list. Raises
    `ConfigError` for an unknown price."""
    name = modal_gpu(wanted).partition(":")[0]
    known = DOLLARS_PER_SECOND | {modal_gpu(gpu): rate for gpu, rate in rates.items()}
    rate = known.get(name)
    if rate is None:
        raise ConfigError(
            f"compute.modal: the price of {name} is not known; set it in compute.modal.rates, in "
            "dollars per second"
        )
    return rate * gpu_count(wanted)


def container_rate(compute: ComputeConfig, role: str) -> float:
    """Return the dollars per second of a role's container: GPUs, cores, memory."""
    gpu = compute.gpu_of(role)
    gpus = dollars_per_second(gpu, compute.modal.rates) if gpu else 0.0
    return gpus + CORE * compute.cpu_of(role) + GIBIBYTE * compute.memory_mb_of(role) / 1024


def sandbox_rate(compute: ComputeConfig, role: str) -> float:
    """Return the dollars per second of the Sandbox that belongs to a role's container, if any."""
    reserved = compute.modal.environment
    has_one = role == "rollout" or (role == "actor" and compute.mode == "single_node")
    if reserved is None or not has_one:
        return 0.0
    return SANDBOX_CORE * reserved.cpu + SANDBOX_GIBIBYTE * reserved.memory_mb / 1024


def check_prices(compute: ComputeConfig) -> None:
    """Raise `ConfigError` for a GPU of the run whose price is not known."""
    for role in ROLES:
        container_rate(compute, role)
