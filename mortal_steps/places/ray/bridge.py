"""A worker on a Ray cluster, as a driver of Ray's sees it. No other code imports Ray."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from mortal_steps.errors import ComputeError, UnusableProcessError
from mortal_steps.places.ray.node import Node, Orders
from mortal_steps.system.frames import Answer

PLACED_WITHIN_S = 5.0
"""How long one look at whether the worker has a node waits for it."""
EXAMINED_WITHIN_S = 60.0
CLOSED_WITHIN_S = 3.0


class Bridge:
    """Has Ray start the worker's node, and passes its calls on."""

    def __init__(
        self, *, address: str, orders: Orders, gpu: str | None, gpus: int, cpus: int, first: bool
    ) -> None:
        """The worker takes `cpus` and, of the kind `gpu`, `gpus`. The `first` bridge of a flow
        looks at every node before any worker is placed."""
        self._address, self._orders, self._is_first = address, orders, first
        on_gpus = {"GPU": gpus, f"accelerator_type:{gpu}": 0.001}  # as Ray's own option has it
        self._wanted: dict[str, float] = {"CPU": cpus, **(on_gpus if gpu else {})}
        self._node: Any = None
        self._begun: Any = None

    def place(self) -> str | None:
        """Return None if the worker has a node, otherwise what it waits for. Raises `ComputeError`
        for a cluster that cannot be used."""
        problem: str | None = None if ray.is_initialized() else self._connect()
        if problem is not None:
            return problem
        if self._is_first and (problem := self._examine()) is not None:
            return problem
        if self._node is None:
            cpus, gpus = self._wanted["CPU"], self._wanted.get("GPU", 0)
            kind = {name: some for name, some in self._wanted.items() if ":" in name}
            actor = ray.remote(num_cpus=cpus, num_gpus=gpus, resources=kind, max_restarts=0)(Node)
            self._node = actor.remote(self._orders)
            self._begun = self._node.begin.remote()
        if not ray.wait([self._begun], timeout=PLACED_WITHIN_S)[0]:
            return self._missing()
        problem, _ = _answer(self._begun, "the node that it was to be on")
        if problem is not None:
            ray.kill(self._node)
            self._node = None
        return problem

    def kinds_of_gpu(self) -> list[str]:
        """Return Ray's names of the GPUs that the cluster has."""
        return sorted({kind for node in _nodes() for kind in _kinds(node["Resources"])})

    def call(self, method: str, payload: Mapping[str, Any], label: str) -> Answer:
        """Return what came of the call of the worker. This process ends if its node is lost."""
        try:
            answer: Answer = ray.get(self._node.call.remote(method, payload, label))
        except ray.exceptions.RayError as error:
            raise UnusableProcessError(f"its node was lost: {error}") from None
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
            if "AuthenticationError" in (cause := str(error.__cause__)):
                raise ComputeError(
                    f"the Ray cluster refuses this machine: {cause.strip().splitlines()[-1]}"
                ) from None
            return (
                f"no Ray cluster answers at {self._address!r} (compute.ray.address): "
                f"{_first_line(error)}. Start it with `ray start --head`, and let this machine and "
                "the others join it with `ray start --address=HOST:PORT`"
            )
        except (RuntimeError, ValueError) as error:  # another version; RAY_ADDRESS is no address
            raise ComputeError(f"the Ray cluster cannot be used from here: {error}") from None
        return None

    def _examine(self) -> str | None:
        """Return which nodes were lost while they were asked, if any; next time, those that are
        there are asked. Raises `ComputeError`, which names them, if nodes cannot be used."""
        look = ray.remote(num_cpus=0, max_retries=0)(Orders.problem_here)
        asked = {}
        for node in _nodes():
            there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[look.options(scheduling_strategy=there).remote(self._orders)] = node
        ray.wait(list(asked), num_returns=len(asked), timeout=EXAMINED_WITHIN_S)
        found = [_answer(one, f"node {node['NodeName']}") for one, node in asked.items()]
        if problems := [problem for problem, is_lost in found if problem and not is_lost]:
            raise ComputeError("the Ray cluster cannot be used: " + "; ".join(problems))
        lost = [problem for problem, _ in found if problem]
        self._is_first = bool(lost)
        return "; ".join(lost) or None

    def _missing(self) -> str:
        """Return which resources no node has, or has free."""
        wanted = self._in_words(self._wanted)
        everyone = [node["Resources"] for node in _nodes()]
        fitting = [
            has for has in everyone if all(has.get(k, 0) >= n for k, n in self._wanted.items())
        ]
        if not fitting:
            has = "; ".join(map(self._in_words, everyone))
            return f"no node has {wanted}; the cluster's nodes have {has}"
        free = self._in_words(ray.available_resources())
        return (
            f"no node has {wanted} free, or its process is still starting there; {len(fitting)} "
            f"have as many, free in all are {free}"
        )

    def _in_words(self, has: Mapping[str, float]) -> str:
        counted = [
            f"{has.get(kind, 0):g} {kind}s" for kind in ("CPU", "GPU") if kind in self._wanted
        ]
        return " ".join([" and ".join(counted), *_kinds(has)])


def _nodes() -> list[Any]:
    return [node for node in ray.nodes() if node["Alive"]]


def _kinds(resources: Mapping[str, float]) -> list[str]:
    return [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]


def _answer(asked: Any, whom: str) -> tuple[str | None, bool]:
    """Return the problem that a node has, and whether it was lost before it told of one."""
    try:
        return ray.get(asked, timeout=0), False
    except ray.exceptions.RayTaskError as error:
        return f"{whom} cannot begin: {_last_line(error)}", False
    except ray.exceptions.RayError as error:
        return f"{whom} does not answer: {_last_line(error)}", True


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


def _last_line(error: Exception) -> str:
    """Return the cause, without the traceback before it and the colours in it."""
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().rpartition("\n")[2]
