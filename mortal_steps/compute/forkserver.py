"""The inside of a fork server: a process that imports what workers need, once, and then becomes a
worker with each fork.

Started by `ForkServer` as `python -m mortal_steps.compute.forkserver FD MODULE...`. Each order that
arrives on the socket brings the descriptors of a new worker along; what is answered on the order's
own socket is the worker's process and, when that has ended, its exit status.

Imports of torch and TRL take some 9 s of a core; a fork takes some 10 ms.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import pickle
import select
import selectors
import signal
import socket
import struct
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from mortal_steps.compute.container import serve_owner
from mortal_steps.config.logging import IMPORTED_BY_TRL
from mortal_steps.system.heavy_imports import training_imports
from mortal_steps.system.scratch import remove_own_scratch

LARGEST_ORDER = 64 * 1024
"""Bytes."""
LARGEST_OUTPUT = 64 * 1024
"""Bytes of what imports print that a worker's log begins with."""
MOST_DESCRIPTORS = 32
STATUS = struct.Struct("i")
"""How a worker's exit status travels, as `subprocess` counts: below zero for a signal."""
OWNER_CHECKED_EVERY_S = 0.2
"""While the imports last."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForkOrder:
    """What a new worker is to be. With it come four descriptors or more: the socket of this order,
    the worker's socket, its output, and what else it shall hold open."""

    name: str
    working_dir: str
    environment: Mapping[str, str | None]
    """Where it differs from the server's own; None: not set."""


def main() -> None:
    """Import, then fork on demand, until the owner closes the socket."""
    with socket.socket(fileno=int(sys.argv[1])) as control:
        with _ending_with(control), training_imports():
            _preload(sys.argv[2:])
        worker = _serve(control)
    if worker is not None:
        _become(*worker)
    _exit(0)


@contextlib.contextmanager
def _ending_with(control: socket.socket) -> Iterator[None]:
    """End this process when its owner does, in the middle of an import, whatever it has ordered. A
    thread that watched would be one too many for a process that forks."""
    owner = select.poll()
    owner.register(control, 0)  # tells of its end, and of no order

    def look(signum: int, frame: object) -> None:
        if owner.poll(0):
            _leave_nothing_of_orders(control)
            os._exit(0)

    signal.signal(signal.SIGALRM, look)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, OWNER_CHECKED_EVERY_S, OWNER_CHECKED_EVERY_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def _leave_nothing_of_orders(control: socket.socket) -> None:
    """Remove the folders of workers that nobody waits for any more, nor will ever be."""
    with contextlib.suppress(OSError):
        while order := control.recv(LARGEST_ORDER, socket.MSG_DONTWAIT):
            remove_own_scratch(pickle.loads(order).environment)


def _preload(modules: Sequence[str]) -> None:
    sys.modules.update(dict.fromkeys(IMPORTED_BY_TRL))  # type: ignore[arg-type]
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:  # noqa: BLE001 - a worker that needs it fails by itself
            sys.stderr.write(f"cannot import {module}: {error}\n")
    for module in IMPORTED_BY_TRL:
        del sys.modules[module]


Worker = tuple[ForkOrder, list[int]]
"""The order that this process became, and its descriptors."""


def _serve(control: socket.socket) -> Worker | None:
    """None when the owner is gone; a worker's order in the process that is to be that worker."""
    wakeup, waker = socket.socketpair()
    with wakeup, waker, selectors.DefaultSelector() as selector:
        wakeup.setblocking(False)
        waker.setblocking(False)
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        signal.set_wakeup_fd(waker.fileno())
        selector.register(control, selectors.EVENT_READ)
        selector.register(wakeup, selectors.EVENT_READ)
        workers: dict[int, socket.socket] = {}
        while True:
            ready = [key.fileobj for key, _ in selector.select()]
            if wakeup in ready:
                wakeup.recv(4096)
                _bury(workers)
            if control in ready:
                order, descriptors, _, _ = socket.recv_fds(control, LARGEST_ORDER, MOST_DESCRIPTORS)
                if not order:
                    return None
                answers = socket.socket(fileno=descriptors.pop(0))
                pid = os.fork()
                if pid == 0:
                    for each in (answers, *workers.values()):
                        each.close()
                    return pickle.loads(order), descriptors
                for descriptor in descriptors:
                    os.close(descriptor)
                _tell_process(answers, pid)
                workers[pid] = answers


def _tell_process(answers: socket.socket, pid: int) -> None:
    """The worker's id and a handle of it: nobody has buried it yet, so it is the right one."""
    handle = os.pidfd_open(pid)
    try:
        with contextlib.suppress(OSError):  # whoever asked is gone
            socket.send_fds(answers, [STATUS.pack(pid)], [handle])
    finally:
        os.close(handle)


def _bury(workers: dict[int, socket.socket]) -> None:
    for pid, answers in list(workers.items()):
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            with workers.pop(pid), contextlib.suppress(OSError):  # whoever asked is gone
                answers.send(STATUS.pack(os.waitstatus_to_exitcode(status)))


def _become(order: ForkOrder, descriptors: list[int]) -> None:
    """Be the worker, as a process would be that was started for it alone."""
    connection, output, *_ = descriptors  # the others are only to stay open
    said = os.pread(1, LARGEST_OUTPUT, 0)  # while it imported
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    with contextlib.suppress(OSError):  # a full disk: what matters then is told elsewhere
        os.write(1, said)
    os.setsid()
    os.chdir(order.working_dir)
    for name, value in order.environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    tempfile.tempdir = None  # found anew, in the environment
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(order.name)
    if "torch" in sys.modules:  # which has read the server's environment
        sys.modules["torch"].set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    try:
        serve_owner(connection)
    except BaseException:  # noqa: BLE001 - the end of the process, as of an interpreter
        traceback.print_exc()
        _exit(1)


def _exit(code: int) -> NoReturn:
    """End like an interpreter, without taking apart what this process shares with others: that
    would copy every page of it."""
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
