"""Rank 0's hold on the others: `Crew` starts them and gives orders, `Led` is a stepper of all."""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import os
import queue
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, cast

from mortal_steps.config.training import FULL
from mortal_steps.errors import ActorStateError
from mortal_steps.policy.algorithms.base import Snapshot, Stepper, algorithm_of
from mortal_steps.policy.plan import TrainerPlan
from mortal_steps.policy.ranks.follower import ANSWERED, FORGET, MAKE
from mortal_steps.policy.ranks.machines import CONNECTIONS, ORDERS_PORT, Machines, Ranks, machines
from mortal_steps.policy.ranks.world import START_S, join, neighbours
from mortal_steps.system.child import Child
from mortal_steps.system.frames import Answer, Request, receive_frame, send_frame
from mortal_steps.system.links import accept, listen

logger = logging.getLogger(__name__)

TOGETHER = ("begin", "train_step", "draw_order", "evaluate", *ANSWERED)
"""Methods of a stepper in which all ranks take part."""
SHARED = (
    "score",
    "warnings",
    "export_weights",
    "published_digests",
    "save_state",
    "digests",
    "save_final",
    "snapshot",
)
"""Those in which they do besides where each has a part of the model."""
WRITING = ("save_state", "export_weights", "save_final")
"""Those that may take a rank longer than the others, which do not wait for it meanwhile."""
PATIENCE_S = 60.0
"""How long ranks may be apart, in seconds, where one of them has failed."""


class Crew:
    """The other ranks, which end with this process, as this one does with any of them."""

    def __init__(self, num_ranks: int, timeout_s: float, sharding: str) -> None:
        """Start them, and return once all ranks have joined."""
        rendezvous = Path(tempfile.mkdtemp(prefix="mortal-ranks-"), "meeting")
        self._connections: list[socket.socket] = []
        self._beside: list[socket.socket] = []
        self._answers: list[queue.Queue[Answer]] = []
        self._timeout_s, self._longest_s = timeout_s, max(PATIENCE_S, timeout_s)
        self._shards, here = sharding == FULL, machines()
        self._is_broken, self._method = False, ""
        self._number = 0
        ranks = Ranks(count=num_ranks, timeout_s=timeout_s, sharding=sharding, meeting=rendezvous)
        own = num_ranks // len(here.addresses)
        for number in range(1, own):
            self._start(number, ranks)
        if own < num_ranks:
            self._await_others(here, range(own, num_ranks))
        join(0, num_ranks, rendezvous, timeout_s, shards=self._shards)

    def stepper(self, plan: TrainerPlan, **options: Any) -> Stepper:
        """Return the trainer of all ranks, made anew on each; `options` are the arguments of
        `Algorithm.stepper`."""
        make = functools.partial(algorithm_of(plan.algorithm).stepper, plan, **options)
        made = self.together(MAKE, {"plan": plan, "options": options}, make)
        if not self._shards:
            return cast(Stepper, Led(self, made, TOGETHER))
        return cast(Stepper, LedParts(self, made, TOGETHER + SHARED))

    def together(self, method: str, payload: Mapping[str, Any], own: Callable[[], Any]) -> Any:
        """Have the others take part in what this process computes by `own`; return its value.

        Raises what this rank raises, or else what another one does, and `ActorStateError` if ranks
        have come to different values.
        """
        if self._is_broken:
            _end("a rank had failed without the others")
        self._number += 1
        self._method = method
        order = Request(number=self._number, method=method, payload=payload)
        with _ending_if_one_is_lost():
            for connection in self._connections:
                send_frame(connection, order)
        try:
            value = own()
        except Exception as error:
            self._settle(method, error)
            raise
        limit_s = START_S if method == MAKE else self._longest_s
        for number, answer in enumerate(self._gather(method, limit_s), 1):
            if answer.error is not None:
                raise answer.error
            if method in ANSWERED and not self._shards and answer.value != value:
                raise ActorStateError(
                    f"ranks 0 and {number} have computed different weights from the same batch; "
                    "see to the machine's GPUs and their connection"
                )
        return value

    def save_beside(self, folder: Path, own: Callable[[], None]) -> None:
        """Have the others write their snapshots to `folder` while this thread does so by `own`, and
        others take part in something else. Raises what a rank raises."""
        with _ending_if_one_is_lost():
            for connection in self._beside:
                send_frame(connection, folder)
        try:
            own()
        finally:
            deadline = time.monotonic() + self._longest_s
            with _ending_if_one_is_lost():
                answers: list[Answer] = [
                    receive_frame(connection, deadline=deadline) for connection in self._beside
                ]
        for answer in answers:
            if answer.error is not None:
                raise answer.error

    def _settle(self, method: str, error: Exception) -> None:
        """After an error of this rank: see whether the others can go on, and else answer with the
        error before all end. What the loss of another rank brings about is no error of this one."""
        import torch  # whoever imports the actor may not need it yet

        logger.error("rank 0: %s failed", method, exc_info=error)
        limit_s = self._patience_s(method, min(PATIENCE_S, self._timeout_s))
        failed: dict[int, BaseException] = {}
        try:
            for number, answers in enumerate(self._answers, 1):
                answer = answers.get(timeout=limit_s)
                if answer.error is not None and not _is_of_others(answer.error):
                    failed[number] = answer.error
        except queue.Empty:
            self._is_broken = True
        if isinstance(error, torch.distributed.DistError) or _is_of_others(error):
            for number, reason in failed.items():  # which this rank has waited for in vain
                _end(f"rank {number} failed: {type(reason).__name__}: {reason}")
            _end("a rank was lost, or did not come")

    def _gather(self, method: str, limit_s: float) -> list[Answer]:
        """Return the answers of all. If one has none within `limit_s`, it waits in a collective, or
        hangs, and all are begun anew."""
        try:
            return [answers.get(timeout=limit_s) for answers in self._answers]
        except queue.Empty:
            _end(f"the ranks do not leave `{method}` together")

    def _start(self, number: int, ranks: Ranks) -> None:
        pairs = [socket.socketpair() for _ in range(3)]
        (orders, beside, neighbour), theirs = zip(*pairs, strict=True)
        with theirs[0], theirs[1], theirs[2]:
            child = ranks.start(number, theirs[:2], theirs[2:])
        neighbours.append(neighbour)
        self._hold(number, orders, beside, child)

    def _await_others(self, here: Machines, numbers: range) -> None:
        """Hold the ranks of the other machines, which connect to this one."""
        deadline, found = time.monotonic() + START_S, dict[tuple[int, str], socket.socket]()
        with _ending_if_one_is_lost(), listen(here.addresses[0], ORDERS_PORT) as server:
            while len(found) < len(CONNECTIONS) * len(numbers):
                connection = accept(server, here.secret, deadline)
                found[receive_frame(connection, deadline=deadline)] = connection
                connection.settimeout(None)
        for number in numbers:
            orders, beside = (found[number, name] for name in CONNECTIONS)
            self._hold(number, orders, beside, None)

    def _hold(
        self, number: int, orders: socket.socket, beside: socket.socket, child: Child | None
    ) -> None:
        longest = struct.pack("ll", math.ceil(self._timeout_s), 0)  # for an order, not its answer
        orders.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, longest)
        self._connections.append(orders)
        self._beside.append(beside)
        self._answers.append(queue.Queue())
        watch = threading.Thread(
            target=self._listen, args=(number, child), name=f"rank {number}", daemon=True
        )
        watch.start()

    def _listen(self, number: int, child: Child | None) -> None:
        """Take the answers of a rank. If it ends, so does this process; and if it fails where this
        one does not, which may wait for it in a collective."""
        connection, answers = self._connections[number - 1], self._answers[number - 1]
        while True:
            try:
                answer: Answer = receive_frame(connection)
            except (EOFError, OSError):
                if child is not None:
                    child.kill()
                _end(f"rank {number}, which trains together with this process, has ended")
            answers.put(answer)
            if answer.error is not None:
                patience_s = self._patience_s(self._method, PATIENCE_S)
                late = threading.Timer(patience_s, self._end_if_untaken, (number, answer))
                late.daemon = True
                late.start()

    def _patience_s(self, method: str, usual_s: float) -> float:
        if method == MAKE:
            return START_S
        return self._longest_s if method in WRITING else usual_s

    def _end_if_untaken(self, number: int, answer: Answer) -> None:
        if not self._is_broken and answer in self._answers[number - 1].queue:
            _end(f"rank {number} failed, and this process waits for it: {answer.error}")


class Led:
    """A stepper of rank 0, in whose collective methods all ranks take part."""

    def __init__(self, crew: Crew, stepper: Stepper, together: Sequence[str]) -> None:
        self._crew, self._stepper, self._methods = crew, stepper, together

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._stepper, name)
        return functools.partial(self._together, name, found) if name in self._methods else found

    def _together(self, name: str, own: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        payload = {"args": args, "kwargs": kwargs}
        return self._crew.together(name, payload, functools.partial(own, *args, **kwargs))


class LedParts(Led):
    """One that is dealt out to the ranks."""

    def snapshot(self) -> Snapshot:
        return _Parts(self._crew, self._together("snapshot", self._stepper.snapshot))

    def why_no_snapshot(self) -> str | None:
        if machines().are_several:
            return "ranks on several machines write together, by way of the first"
        self._together(FORGET, lambda: None)  # what the others drop is free again
        return self._stepper.why_no_snapshot()


class _Parts:
    """Snapshots of all ranks, of which this is rank 0's."""

    def __init__(self, crew: Crew, own: Snapshot) -> None:
        self._crew, self._own = crew, own

    def save_state(self, folder: Path) -> None:
        self._crew.save_beside(folder, functools.partial(self._own.save_state, folder))

    def digests(self) -> dict[str, str]:
        return self._own.digests()


@contextlib.contextmanager
def _ending_if_one_is_lost() -> Iterator[None]:
    """End if, in the block, which does nothing but talk with other ranks, one is lost or hangs."""
    try:
        yield
    except (EOFError, OSError):
        logger.exception("a rank does not answer")  # and what this one had raised before
        _end("a rank was lost, or hangs")


def _is_of_others(error: BaseException) -> bool:
    """Whether it is what gloo or NCCL say where another rank is lost, or does not come."""
    said = str(error).lower()
    return isinstance(error, RuntimeError) and any(word in said for word in ("gloo", "nccl"))


def _end(why: str) -> NoReturn:
    logger.error("%s; this process ends, and all ranks are begun anew", why)
    logging.shutdown()
    os._exit(1)
