"""The inside of a local container: one process with one worker, which handles one call at a time.

`LocalContainer` starts it as `python -m mortal_steps.compute.container FD`, or it is forked. What
the worker prints goes to its log file; calls arrive on a socket.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import sys
from typing import Any

from mortal_steps.system.faults import as_mortal_error, ends_process
from mortal_steps.system.frames import Answer, Construct, receive_frame, send_frame

logger = logging.getLogger("mortal_steps.compute.container")  # not __main__, which this is


def serve_owner(descriptor: int) -> None:
    """Serve the calls that arrive on this socket until the owner closes it."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    with socket.socket(fileno=descriptor) as connection:
        try:
            worker = _construct(receive_frame(connection))
            send_frame(connection, Answer(number=0, value=os.getpid()))
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
    """Write one line, so that the log of a worker that was killed shows what it was doing."""
    if label:
        logger.info("%s %s", label, what)


def _construct(order: Construct) -> Any:
    logger.info("process %d is a %s", os.getpid(), order.factory)
    module, _, name = order.factory.partition(":")
    return getattr(importlib.import_module(module), name)(**order.kwargs)


def _failure(number: int, error: Exception) -> Answer:
    logger.error("call failed", exc_info=error)
    if ends_process(error):
        logger.error(
            "%s: %s\nthis process can compute no more; it ends, and a new one repeats the call",
            *(type(error).__name__, error),
        )
        os._exit(1)
    return Answer(number=number, error=as_mortal_error(error))


if __name__ == "__main__":
    serve_owner(int(sys.argv[1]))
