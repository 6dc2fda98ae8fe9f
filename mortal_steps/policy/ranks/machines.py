"""The machines that the ranks of one actor are on, each with as many of them. Imports no torch.

    machine 0: rank 0, which leads, and 1    machine 1: ranks 2 and 3

The first machine's ranks are started by rank 0; those of each other one by `Followers` there, which
connects them to rank 0. A follower does not see the difference: its connections are open when it
starts.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path

from mortal_steps.system.child import Child
from mortal_steps.system.frames import send_frame
from mortal_steps.system.links import reach

logger = logging.getLogger(__name__)

VARIABLE = "MORTAL_MACHINES"
"""Of a rank's environment: its `Machines` as JSON. Without it, there is one machine."""
FOLLOWER = "mortal_steps.policy.ranks.follower"
ORDERS_PORT, STORE_PORT = 29410, 29411
"""Of the first machine: where rank 0 awaits the others' connections, and torch's store is."""
CONNECTIONS = ("orders", "beside")
"""Of each rank to rank 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machines:
    """All of them, as one of them sees it."""

    addresses: tuple[str, ...] = ("127.0.0.1",)
    """Of each, as the others reach it."""
    number: int = 0
    """Of this one."""
    secret: str = ""
    """What all of them know and nobody else does."""

    @property
    def are_several(self) -> bool:
        return len(self.addresses) > 1

    def environment(self) -> dict[str, str]:
        """Return the variables that tell a process of them."""
        return {VARIABLE: json.dumps(asdict(self))}


def machines() -> Machines:
    """Return the machines of this process's actor."""
    told = json.loads(os.environ.get(VARIABLE, "{}"))
    return Machines(**{**told, "addresses": tuple(told["addresses"])}) if told else Machines()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ranks:
    """What all ranks are started with."""

    count: int
    timeout_s: float
    sharding: str
    meeting: Path | str = ""
    """File in which they meet, where there is one machine."""

    def start(
        self,
        number: int,
        connections: Sequence[socket.socket],
        neighbours: Sequence[socket.socket] = (),
        env: Mapping[str, str] | None = None,
    ) -> Child:
        """Start a rank other than 0, which gets the connections and those to its neighbours."""
        orders, beside = (each.fileno() for each in connections)
        others = [each.fileno() for each in neighbours]
        arguments = [orders, beside, number, self.count, self.meeting, self.timeout_s]
        arguments += [self.sharding, ",".join(map(str, others))]
        return Child(
            [sys.executable, "-P", "-m", FOLLOWER, *map(str, arguments)],
            pass_fds=[orders, beside, *others],
            env=env,
        )


class Followers:
    """The ranks of a machine other than the first, whose processes have this `environment`."""

    def __init__(self, here: Machines, ranks: Ranks, environment: Mapping[str, str]) -> None:
        self._here, self._ranks = here, ranks
        self._environment = {**environment, **here.environment()}
        self._children: list[Child] = []

    def keep(self) -> None:
        """Start all of them where one is not there, if rank 0 awaits them."""
        if self._children and all(child.poll() is None for child in self._children):
            return
        self.close()
        each = self._ranks.count // len(self._here.addresses)
        first = self._here.number * each
        with ExitStack() as ours:  # which a follower's end is not to leave open
            try:
                links = [
                    [ours.enter_context(self._reach(first + one, name)) for name in CONNECTIONS]
                    for one in range(each)
                ]
            except OSError:
                return
            pairs = [socket.socketpair() for _ in range(1, each)]
            for end in (end for pair in pairs for end in pair):
                ours.enter_context(end)
            known = [[end for end, _ in pairs], *([end] for _, end in pairs)]
            for one, (connections, neighbours) in enumerate(zip(links, known, strict=True)):
                child = self._ranks.start(first + one, connections, neighbours, self._environment)
                self._children.append(child)
        logger.info("ranks %d to %d are started", first, first + each - 1)

    def close(self) -> None:
        for child in self._children:
            child.kill_all()
        self._children = []

    def _reach(self, number: int, name: str) -> socket.socket:
        connection = reach(self._here.addresses[0], ORDERS_PORT, self._here.secret)
        send_frame(connection, (number, name))
        return connection
