"""The inside of a host: the process in which a handler, and the code of users behind it, run.

Started by `HostProcess` as `python -m mortal_steps.hosts.inside FD STACKS CONTROL`: its connection,
a file for where in its code it was, and where it is told to fork. It is asked in pickles and
answers in JSON: it trusts its owner, which does not trust what users' code makes of this process.
"""

import contextlib
import faulthandler
import gc
import logging
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from mortal_steps.errors import MortalError
from mortal_steps.hosts.answers import HostAnswer, encode_answer, sent_error
from mortal_steps.hosts.forked import ORDER
from mortal_steps.system.child import adopt_orphans
from mortal_steps.system.forks import serve_forks
from mortal_steps.system.frames import Construct, Request, receive_frame, send_bytes
from mortal_steps.users_code.loading import import_code

GONE = (EOFError, BrokenPipeError)
"""What a connection has whose owner has ended; a user's code raises its own in `_answer`."""
logger = logging.getLogger("mortal_steps.hosts.inside")  # not __main__, which this is


def serve(descriptor: int, stacks: int, control: int) -> None:
    """Make the handler of the first frame; fork and answer until the owner closes."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    faulthandler.enable(stacks)
    handler: Any = None
    forked: tuple[bytes, list[int]] | None = None

    def construct(order: Construct) -> None:
        nonlocal handler
        handler = _construct(order)

    def answer_request() -> None:
        _answer_request(connection, handler, stacks)

    with (
        socket.socket(fileno=descriptor) as connection,
        socket.socket(fileno=control) as orders,
        contextlib.suppress(*GONE),
    ):
        order: Construct = receive_frame(connection)
        left_s = None if order.late_at is None else max(0.1, order.late_at - time.monotonic())
        with _stack_dumped(stacks, left_s):
            is_made = _answer(connection, 0, partial(construct, order))
        if not is_made:
            return
        forked = serve_forks(
            orders,
            largest=len(ORDER),
            also={connection: answer_request},
            before_first=_prepare_to_fork,
        )
    if forked is not None:
        _, descriptors = forked
        os.close(stacks)
        _serve_fork(handler, *descriptors)


def _prepare_to_fork() -> None:
    gc.collect()
    gc.freeze()  # a collection would copy the pages that the forks share
    threads = [each.name for each in threading.enumerate()[1:]]
    if threads:
        logger.warning(
            "threads began when code of the user was imported: %s; they are not in the forks of "
            "this process, where a lock that one of them holds is never given back",
            ", ".join(threads),
        )


def _serve_fork(handler: Any, descriptor: int, stacks: int) -> None:
    """Answer requests until the owner closes, then end."""
    faulthandler.enable(stacks)
    adopt_orphans()  # a daemon of users' code ends with this fork, by which the host finds it
    with socket.socket(fileno=descriptor) as connection, contextlib.suppress(*GONE):
        _answer(connection, 0, lambda: None)
        while True:
            _answer_request(connection, handler, stacks)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # what the host does at its exit is not the fork's


def _answer_request(connection: socket.socket, handler: Any, stacks: int) -> None:
    request: Request = receive_frame(connection)
    method = partial(getattr(handler, request.method), **request.payload)
    with _stack_dumped(stacks, request.timeout_s):
        _answer(connection, request.number, method)


def _construct(order: Construct) -> Any:
    logger.info("process %d is a %s", os.getpid(), order.factory)
    return import_code(order.factory, "the handler of a host")(**order.kwargs)


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
