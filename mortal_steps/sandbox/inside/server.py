"""The server in a box: the first process there, which forks a process for each program.

As the first process, it receives no signals from the others and can end them all with one call. It
holds the only connection to the outside. A program has three descriptors, which nobody else has.
The messages are described in `lane`.
"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import importlib
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from typing import Any

from . import program, wire
from .enclosure import Box, enclosure_of
from .watch import Ending, Watch

LARGEST_REQUEST = 256 * 2**20
F_ADD_SEALS, ALL_SEALS = 1033, 0xF

PRELOADED = (
    *("bisect", "collections.abc", "copy", "dataclasses", "datetime", "decimal", "enum"),
    *("fractions", "functools", "heapq", "itertools", "json", "math", "operator", "random"),
    *("re", "statistics", "string", "textwrap", "typing"),
)
"""Modules that programs often import. The server imports them once for all programs."""


def main(descriptor: int) -> None:
    """Serve the socket `descriptor` until its other end is closed."""
    with socket.socket(fileno=descriptor) as connection:
        serve(connection)


def serve(connection: wire.Connection) -> None:
    """Run programs until the other end closes, or one leaves something behind."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the first process of a box ignores it then
    with contextlib.suppress(EOFError):
        start = wire.receive(connection, LARGEST_REQUEST)
        enclosure = enclosure_of(start)
        start["uid"] = enclosure.uid
        _prepare(start, enclosure)
        wire.send(connection, {"ready": os.getpid()})
        while not enclosure.is_used_up:
            _answer_one(connection, start, enclosure)


def _prepare(start: dict[str, Any], enclosure: Box) -> None:
    enclosure.prepare()
    sys.path += start["packages"]
    for name in (*PRELOADED, *start.get("preload", ())):
        importlib.import_module(name)
    gc.collect()
    gc.freeze()


def _answer_one(connection: wire.Connection, start: dict[str, Any], enclosure: Box) -> None:
    """Run the next program; keep nothing of it in memory, which the next one, a fork, can read."""
    request = wire.receive_head(connection, LARGEST_REQUEST)
    limits = request["limits"]
    code_size, stdin_size = request[wire.SIZES]
    with _file(connection, code_size) as code, _file(connection, stdin_size) as stdin:
        ending, duration_s = _run(limits, (code, stdin), connection, start, enclosure)
    answer = {**_answer(ending, limits, duration_s), "used_up": enclosure.is_used_up}
    with contextlib.closing(ending.stdout), contextlib.closing(ending.stderr):
        wire.send(connection, answer, ending.stdout, ending.stderr)


def _run(
    limits: dict[str, Any],
    files: tuple[int, int],
    connection: wire.Connection,
    start: dict[str, Any],
    enclosure: Box,
) -> tuple[Ending, float]:
    """Run a program until all its processes ended; returns how, and the seconds. `files`:
    descriptors of code and stdin."""
    code, stdin = files
    with enclosure.scratch(limits["tmp_mb"]):
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        confined, confined_end = os.pipe()
        began = time.monotonic()
        pid = os.fork()
        if pid == 0:
            program.become(code, limits, (stdin, out_end, err_end, confined_end), start)
        for descriptor in (out_end, err_end, confined_end):
            os.close(descriptor)
        try:
            if os.read(confined, 1) != program.CONFINED:
                raise RuntimeError(os.read(err, 65536).decode(errors="replace"))
            watch = Watch(pid, (out, err), limits, enclosure)
            ending = watch.until_its_end(connection)
        finally:
            for descriptor in (out, err, confined):
                os.close(descriptor)
    return ending, time.monotonic() - began


def _answer(ending: Ending, limits: dict[str, Any], duration_s: float) -> dict[str, Any]:
    limit = ending.limit
    if ending.exit_code == -signal.SIGKILL and ending.cpu_s >= limits["cpu_s"]:
        limit = limit or "cpu_s"  # the kernel killed it before the server did
    return {
        "exit_code": ending.exit_code,
        "limit": limit,
        "cpu_s": ending.cpu_s,
        "wall_s": ending.wall_s,
        "duration": duration_s,
    }


@contextlib.contextmanager
def _file(connection: wire.Connection, size: int) -> Iterator[int]:
    """Yield the descriptor of a file that holds the next text and cannot be changed."""
    descriptor = wire.receive_file(connection, size)
    try:
        if size:
            fcntl.fcntl(descriptor, F_ADD_SEALS, ALL_SEALS)
        yield descriptor
    finally:
        os.close(descriptor)
