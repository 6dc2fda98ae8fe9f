"""The inside of a host: the process in which a handler, and the code of users behind it, run.

Started by `HostProcess` as `python -m mortal_steps.hosts.inside FD STACKS`: its connection, and a
file for where in its code it was. It is asked in pickles and answers in JSON: it trusts its owner,
which does not trust what users' code makes of this process.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import socket
import sys
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mortal_steps.errors import MortalError
from mortal_steps.extensions import import_named
from mortal_steps.hosts.answers import HostAnswer, encode_answer, sent_error
from mortal_steps.system.frames import Construct, Request, receive_frame, send_bytes

logger = logging.getLogger("mortal_steps.hosts.inside")  # not __main__, which this is


def serve(descriptor: int, stacks: int) -> None:
    """Make the handler that the first frame names, and answer requests until the owner closes."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    faulthandler.enable(stacks)
    handler: Any = None

    def construct(order: Construct) -> None:
        nonlocal handler
        handler = _construct(order)

    with socket.socket(fileno=descriptor) as connection:
        try:
            if not _answer(connection, 0, partial(construct, receive_frame(connection))):
                return
            while True:
                request: Request = receive_frame(connection)
                method = partial(getattr(handler, request.method), **request.payload)
                with _stack_dumped(stacks, request.timeout_s):
                    _answer(connection, request.number, method)
        except EOFError:
            return


def _construct(order: Construct) -> Any:
    logger.info("process %d is a %s", os.getpid(), order.factory)
    return import_named(order.factory, "the handler of a host")(**order.kwargs)


def _answer(connection: socket.socket, number: int, work: Callable[[], Any]) -> bool:
    """Send what comes of the work; return whether it is no error."""
    answer: HostAnswer[Any]
    try:
        answer = HostAnswer(number=number, value=work())
        content = encode_answer(answer)
    except Exception as error:  # noqa: BLE001 - the boundary: any error travels to the owner
        trace = traceback.format_exc()
        if not isinstance(error, MortalError):
            logger.error("call failed: %s", trace)
        answer = HostAnswer(number=number, error=sent_error(error, trace))
        content = encode_answer(answer)
    send_bytes(connection, content)
    return answer.error is None


@contextlib.contextmanager
def _stack_dumped(stacks: int, after_s: float | None) -> Iterator[None]:
    """Write the stack to the file if the block lasts longer: nothing can be asked of it then."""
    os.ftruncate(stacks, 0)
    os.lseek(stacks, 0, os.SEEK_SET)
    if after_s is not None:
        faulthandler.dump_traceback_later(after_s, file=stacks)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    serve(*map(int, sys.argv[1:]))
