"""The inside of the containers of one actor, where its ranks are more than one container's GPUs.

Modal starts them together (`modal.clustered`) and gives each request to all of them; what the first
one answers is the result. Modal does not tell them of each other's failures, nor does it keep them
in step. So the others look at the Volume anew, connect to the first, and stay in the request for as
long as it does. The first begins once all have come: what was committed before is there for all.

    container 0   request | all are here | actor: rank 0, 1        | all may go | result
    container 1   request | reload, come | ranks 2, 3: as ordered  |            | (dropped)

A container that is lost takes all others along: its ranks are gone, so the actor ends, and with it
the first container; the others see their connection to it break. Modal then gives the request to
new ones.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NoReturn

from mortal_steps.compute.base import Role, WorkerSpec
from mortal_steps.compute.local_container import worker_environment
from mortal_steps.errors import MortalError
from mortal_steps.models.hub import model_folder
from mortal_steps.places.modal.inside.host import WorkerHost
from mortal_steps.places.modal.messages import CallRequest, CallResult, check_lease
from mortal_steps.policy.ranks.machines import Followers, Machines, Ranks
from mortal_steps.system.faults import as_mortal_error
from mortal_steps.system.frames import receive_frame, send_frame
from mortal_steps.system.links import accept, listen, reach
from mortal_steps.types import FileRef

logger = logging.getLogger(__name__)

REQUESTS_PORT = 29409
"""Of the first container: where the others come to for each request."""
COMES_WITHIN_S = 1800.0
"""How long containers may be apart: each loads the image, and the model where it has none."""
LOOK_EVERY_S = 0.2


class ClusterHost(WorkerHost):
    """`WorkerHost` of one of the containers at these `addresses`, in order."""

    def __init__(self, *, addresses: tuple[str, ...], number: int, **options: Any) -> None:
        super().__init__(**options)
        self._addresses, self._number = addresses, number
        self._followers: Followers | None = None
        self._followed: FileRef | None = None
        self._server = listen(addresses[0], REQUESTS_PORT) if number == 0 else None
        self._is_alone = False
        """Whether another container has been lost since."""

    def call(self, request: CallRequest) -> CallResult:
        if self._server is None:
            return self._follow(request)
        with self._everybody(self._server, request) as error:
            return super().call(request) if error is None else CallResult(error=error)

    def _specs(self, request: CallRequest) -> dict[Role, WorkerSpec]:
        specs = super()._specs(request)
        environment = self._machines(request).environment()
        return {**specs, "actor": replace(specs["actor"], env=environment)}

    def _machines(self, request: CallRequest) -> Machines:
        # Who knows the settings can read the Volume: that is the run's own flow and its containers.
        secret = request.settings.sha256
        return Machines(addresses=self._addresses, number=self._number, secret=secret)

    @contextlib.contextmanager
    def _everybody(
        self, server: socket.socket, request: CallRequest
    ) -> Iterator[MortalError | None]:
        """Yield, once all others have come, what keeps one of them from taking part; let them go at
        the end, unless this container goes."""
        if self._is_alone:
            _end("another container was lost")
        deadline = time.monotonic() + COMES_WITHIN_S
        others: list[socket.socket] = []
        with contextlib.ExitStack() as connections:
            try:
                for _ in self._addresses[1:]:
                    connection = accept(server, request.settings.sha256, deadline)
                    others.append(connections.enter_context(connection))
                errors = [receive_frame(each, deadline=deadline) for each in others]
            except (EOFError, OSError):
                _end("another container does not come, or is lost")
            yield next((error for error in errors if error is not None), None)
            # They say no more, so what can be read is an end. What has been answered counts.
            self._is_alone = bool(select.select(others, [], [], 0)[0])
            for each in others:
                with contextlib.suppress(OSError):
                    send_frame(each, None)

    def _follow(self, request: CallRequest) -> CallResult:
        """Have this container's ranks take part in what the first one is asked."""
        try:
            with self._first(request) as first:
                send_frame(first, self._prepared(request))
                while not select.select([first], [], [], LOOK_EVERY_S)[0]:
                    if self._followers is not None:
                        self._followers.keep()
                receive_frame(first)
        except (EOFError, OSError):
            logger.exception("the first container is lost, or ranks cannot be started here")
            _end("this container cannot take part any more")
        return CallResult()

    def _first(self, request: CallRequest) -> socket.socket:
        deadline = time.monotonic() + COMES_WITHIN_S
        while True:
            try:
                return reach(self._addresses[0], REQUESTS_PORT, request.settings.sha256)
            except OSError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(LOOK_EVERY_S)

    def _prepared(self, request: CallRequest) -> MortalError | None:
        """Get ready; return what keeps this container from it."""
        try:
            self._reload()
            check_lease(self._store(), request.lease)
            if self._followers is None or self._followed != request.settings:
                if self._followers is not None:
                    self._followers.close()
                actor = self._specs(request)["actor"]
                trainer = actor.kwargs["plan"].trainer
                # Ranks here are told the first container's path of it, which is the same here.
                model_folder(actor.kwargs["model_path"], trainer.model)
                training = trainer.training
                ranks = Ranks(
                    count=training.ranks,
                    timeout_s=training.rank_timeout_s,
                    sharding=training.sharding,
                )
                environment = worker_environment(actor, {})
                self._followers = Followers(self._machines(request), ranks, environment)
                self._followed = request.settings
        except Exception as error:  # the boundary: any error travels to the first container
            logger.exception("this container cannot take part")
            return as_mortal_error(error)
        return None


def _end(why: str) -> NoReturn:
    logger.error("%s; this container ends, and all are begun anew", why)
    logging.shutdown()
    os._exit(1)
