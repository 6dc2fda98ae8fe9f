"""A rank other than 0: takes part in what rank 0 orders, until that is gone.

python -m mortal_steps.policy.ranks.follower ORDERS BESIDE RANK RANKS MEETING TIMEOUT_S SHARDING
NEIGHBOURS
"""

from __future__ import annotations

import gc
import logging
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Any

from mortal_steps.config.training import FULL
from mortal_steps.policy.algorithms.base import algorithm_of
from mortal_steps.policy.gpu import empty_cache, gives_back
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.policy.ranks.world import join, neighbours, rank
from mortal_steps.report.trackers.table import IMPORTED_BY_TRL
from mortal_steps.system.faults import as_mortal_error, ends_process
from mortal_steps.system.frames import Answer, Request, receive_frame, send_frame
from mortal_steps.system.threads import yield_to_others

logger = logging.getLogger("mortal_steps.policy.ranks.follower")  # not __main__, which this is
MAKE = "make"
"""The order to make a stepper, from its plan and `Algorithm.stepper`'s arguments."""
FORGET = "why_no_snapshot"
"""The order to drop a snapshot that nobody has asked for, before memory for the next is sought."""
ANSWERED = ("weights_digest",)
"""Methods whose values rank 0 compares with its own, where each rank has all weights."""


class Follower:
    """Holds this rank's trainer."""

    def __init__(self) -> None:
        self._stepper: Any = None
        self._gives_back = False
        self._snapshot: Any = None

    def take_part(self, order: Request) -> Answer:
        """Do what is ordered."""
        try:
            if order.method == MAKE:
                self._make(**order.payload)
                return Answer(number=order.number)
            if order.method == FORGET:
                self._snapshot = None
            method = getattr(self._stepper, order.method)
            value = method(*order.payload["args"], **order.payload["kwargs"])
            if order.method == "snapshot":
                self._snapshot = value
            if order.method == "begin" or self._gives_back:
                empty_cache()  # an engine may be on this rank's GPU
        except Exception as error:
            logger.exception("rank %d: %s failed", rank(), order.method)
            if ends_process(error):
                os._exit(1)
            return Answer(number=order.number, error=as_mortal_error(error))
        return Answer(number=order.number, value=value if order.method in ANSWERED else None)

    def save_beside(self, connection: socket.socket) -> None:
        """Write snapshots to where rank 0 says, until that is gone."""
        yield_to_others()
        while True:
            try:
                folder = receive_frame(connection)
            except EOFError:
                return
            answer = Answer(number=0)
            try:
                self._snapshot.save_state(folder)
            except Exception as error:
                logger.exception("rank %d: a snapshot is not saved", rank())
                answer = Answer(number=0, error=as_mortal_error(error))
            self._snapshot = None
            send_frame(connection, answer)

    def _make(self, plan: TrainerPlan, options: Any) -> None:
        self._stepper = self._snapshot = None
        gc.collect()  # a trainer is full of reference cycles, and holds the device's memory
        self._gives_back = gives_back(plan.rollout)
        self._stepper = algorithm_of(plan.algorithm).stepper(plan, **options)


def main(
    descriptor: str,
    beside: str,
    number: str,
    count: str,
    rendezvous: str,
    timeout_s: str,
    sharding: str,
    others: str,
) -> None:
    """Take part until rank 0 closes the connection."""
    logging.basicConfig(
        level=logging.INFO, format=f"%(asctime)s %(levelname)s rank {number}: %(message)s"
    )
    for module in IMPORTED_BY_TRL:
        sys.modules.setdefault(module, None)  # type: ignore[arg-type]
    with socket.socket(fileno=int(descriptor)) as connection:
        shards = sharding == FULL
        neighbours.extend(socket.socket(fileno=int(each)) for each in others.split(",") if each)
        join(int(number), int(count), Path(rendezvous), float(timeout_s), shards=shards)
        follower = Follower()
        saving = socket.socket(fileno=int(beside))
        threading.Thread(target=follower.save_beside, args=(saving,), daemon=True).start()
        while True:
            try:
                order = receive_frame(connection)
            except EOFError:
                return
            send_frame(connection, follower.take_part(order))


if __name__ == "__main__":
    main(*sys.argv[1:])
