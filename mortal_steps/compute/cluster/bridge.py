"""A worker on a Ray cluster, as a process that is a driver of Ray's sees it: the only code here
that imports Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mortal_steps.compute.cluster.node import Node, Orders, versions
from mortal_steps.errors import ComputeError, UnusableProcessError
from mortal_steps.system.frames import Answer

PLACED_WITHIN_S = 5.0
"""How long one look at whether the worker has a node waits for that."""
EXAMINED_WITHIN_S = 60.0
CLOSED_WITHIN_S = 3.0


class Bridge:
    """Has Ray start the worker's node, and passes its calls on."""

    def __init__(
        self, *, address: str, orders: Orders, gpu: str | None, gpus: int, cpus: int, first: bool
    ) -> None:
        """The worker takes so many `gpus` of one kind, `gpu`, or none, and `cpus`. The `first`
        bridge of a flow looks at all nodes before any worker is placed."""
        mortal = orders.versions  # of the flow: Ray may have an interpreter of its own
        self._orders = replace(orders, versions={**versions(), **mortal})
        self._address, self._is_first = address, first
        self._gpu, self._gpus, self._cpus = gpu, gpus, cpus
        self._node: Any = None
        self._problem: Any = None

    def place(self) -> str | None:
        """Return None if the worker has a node now, otherwise what it waits for. Raises
        `ComputeError` for a cluster or a node that cannot be used."""
        problem: str | None = None if ray.is_initialized() else self._connect()
        if problem is not None:
            return problem
        if self._is_first:
            self._examine()
        if self._node is None:
            self._begin()
        done, _ = ray.wait([self._problem], timeout=PLACED_WITHIN_S)
        if not done:
            return self._missing()
        try:
            problem = ray.get(self._problem)
        except ray.exceptions.RayError as error:
            problem = f"its node was lost while it started: {_first_line(error)}"
        if problem is not None:
            ray.kill(self._node)
            self._node = None
        return problem

    def call(self, method: str, payload: Mapping[str, Any], label: str) -> Answer:
        """Return what came of the call of the worker. This process ends if its node is lost."""
        try:
            answer: Answer = ray.get(self._node.call.remote(method, payload, label))
        except ray.exceptions.RayError as error:
            raise UnusableProcessError(f"the worker's node was lost: {error}") from None
        return answer

    def close(self) -> None:
        """Have the worker ended, and its resources given back."""
        if self._node is not None:
            ray.wait([self._node.close.remote()], timeout=CLOSED_WITHIN_S)
            ray.kill(self._node)
        ray.shutdown()

    def _connect(self) -> str | None:
        try:
            ray.init(address=self._address, namespace="mortal", logging_level="warning")
        except ConnectionError as error:
            if "AuthenticationError" in (why := str(error.__cause__)):
                *_, said = why.strip().splitlines()
                raise ComputeError(f"the Ray cluster refuses this machine: {said}") from None
            return (
                f"there is no Ray cluster at {self._address!r} (compute.ray.address): "
                f"{_first_line(error)}. Start one with `ray start --head`, and let this machine "
                "and the others join it with `ray start --address=HOST:PORT`"
            )
        except RuntimeError as error:  # other versions of Python or Ray
            raise ComputeError(f"the Ray cluster cannot be used from here: {error}") from None
        return None

    def _begin(self) -> None:
        options: dict[str, Any] = {"num_cpus": self._cpus, "num_gpus": 0}
        if self._gpu is not None:
            options |= {"num_gpus": self._gpus, "accelerator_type": self._gpu}
        actor = ray.remote(Node).options(max_restarts=0, max_task_retries=0, **options)
        self._node = actor.remote(self._orders)
        self._problem = self._node.problem.remote()

    def _examine(self) -> None:
        """Raise `ComputeError`, which names them, if nodes cannot be used."""
        look = ray.remote(num_cpus=0, max_retries=0)(Orders.problem_here)
        nodes = [node for node in ray.nodes() if node["Alive"]]
        asked = {
            look.options(
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            ).remote(self._orders): node
            for node in nodes
        }
        ray.wait(list(asked), num_returns=len(asked), timeout=EXAMINED_WITHIN_S)
        problems = [_look(asking, node) for asking, node in asked.items()]
        if found := [problem for problem in problems if problem]:
            raise ComputeError("the Ray cluster cannot be used: " + "; ".join(found))
        self._is_first = False

    def _missing(self) -> str:
        wanted = f"{self._cpus} CPUs"
        if self._gpu is not None:
            wanted += f" and {self._gpus} GPUs of kind {self._gpu}"
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fit = [node for node in nodes if self._fits(node)]
        if not fit:
            return f"no node has {wanted}; the cluster's {len(nodes)} nodes have {_counted(nodes)}"
        free = ray.available_resources()
        return (
            f"no node has {wanted} free; of {_counted(fit)} on {len(fit)} nodes that have so many, "
            f"{free.get('CPU', 0):g} CPUs and {free.get('GPU', 0):g} GPUs of the cluster are free"
        )

    def _fits(self, node: Mapping[str, float]) -> bool:
        if self._gpu is not None and f"accelerator_type:{self._gpu}" not in node:
            return False
        gpus = self._gpus if self._gpu is not None else 0
        return node.get("CPU", 0) >= self._cpus and node.get("GPU", 0) >= gpus


def _look(asking: Any, node: Mapping[str, Any]) -> str | None:
    try:
        problem: str | None = ray.get(asking, timeout=0)
    except ray.exceptions.RayError as error:
        return f"node {node['NodeManagerHostname']} does not answer: {_first_line(error)}"
    return problem


def _counted(nodes: list[Mapping[str, float]]) -> str:
    counts = {kind: sum(node.get(kind, 0) for node in nodes) for kind in ("CPU", "GPU")}
    return f"{counts['CPU']:g} CPUs and {counts['GPU']:g} GPUs"


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
