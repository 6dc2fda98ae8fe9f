"""The inside of a local container: one process, one worker, one call at a time.

Started by `LocalCompute` as `python -m mortal_steps.compute.container FD`; whatever the worker
prints goes to its log file, the protocol has a socket of its own.
"""

from __future__ import annotations

import importlib
import logging
import os
import select
import socket
import sys
import threading
from typing import Any

from mortal_steps.compute.failure import as_mortal_error
from mortal_steps.compute.frames import Answer, Construct, receive_frame, send_frame

logger = logging.getLogger("mortal_steps.compute.container")  # not __main__, which this is


def main() -> None:
    """Serve calls until the owner closes the socket."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    _end_with(os.getppid())
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        try:
            worker = _construct(receive_frame(connection))
            send_frame(connection, Answer(number=0))
        except EOFError:
            return
        except Exception as error:  # noqa: BLE001 - the boundary: any error travels to the owner
            send_frame(connection, _failure(0, error))
            return
        try:
            _serve(connection, worker)
        finally:
            if hasattr(worker, "close"):  # one without processes of its own needs none
                worker.close()


def _serve(connection: socket.socket, worker: Any) -> None:
    while True:
        try:
            request = receive_frame(connection)
        except EOFError:
            return
        _log(request.label, "begins")
        try:
            value = getattr(worker, request.method)(**request.payload)
            answer = Answer(number=request.number, value=value)
        except Exception as error:  # noqa: BLE001 - the boundary: any error travels to the owner
            answer = _failure(request.number, error)
        _log(request.label, "ends" if answer.error is None else "fails")
        send_frame(connection, answer)


def _log(label: str, what: str) -> None:
    """One line: where a worker that was killed has been, its log tells."""
    if label:
        logger.info("%s %s", label, what)


def _construct(order: Construct) -> Any:
    logger.info("process %d is a %s", os.getpid(), order.factory)
    module, _, name = order.factory.partition(":")
    return getattr(importlib.import_module(module), name)(**order.kwargs)


def _failure(number: int, error: Exception) -> Answer:
    logger.error("call failed", exc_info=error)
    return Answer(number=number, error=as_mortal_error(error))


def _end_with(owner: int) -> None:
    """End this process when its owner ends, even in the middle of a call."""
    if not hasattr(os, "pidfd_open"):
        return  # elsewhere the closed socket ends it, after the call in hand
    try:
        handle = os.pidfd_open(owner)
    except ProcessLookupError:
        os._exit(1)

    def wait() -> None:
        select.select([handle], [], [])
        os._exit(1)

    threading.Thread(target=wait, daemon=True, name="owner-watch").start()


if __name__ == "__main__":
    main()
