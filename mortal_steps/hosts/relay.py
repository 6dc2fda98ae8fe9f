"""A host on another machine: the process there that starts and forks it, and passes on what it is
asked.

`BOOT` is a program for any Python 3.11 there. It reads an archive with this package and the user's
files from its input; then a `Relay` has its methods called, in pickles as `hosts.inside` has, and
tells in JSON what the host answers. Clocks, stacks and endings are those of the machine that the
code is on. It ends, with all its processes, when its owner has gone.
"""

import itertools
import json
import logging
import os
import pickle
import queue
import socket
import struct
import threading
import time
import traceback
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from mortal_steps.hosts.answers import HostAnswer, encode_answer, sent_error
from mortal_steps.hosts.base import HostLostError
from mortal_steps.hosts.connections import Connections
from mortal_steps.hosts.forked import ForkedHost
from mortal_steps.hosts.process import LOOPBACK, PATH, HostProcess, visible_environment
from mortal_steps.system.child import Child
from mortal_steps.system.resources import raise_file_limit

BOOT = """
import io, os, struct, sys, tempfile, zipfile
def exactly(size):
    arrived = b""
    while len(arrived) < size:
        arrived += os.read(0, size - len(arrived)) or sys.exit("nobody is there")
    return arrived
folder = tempfile.mkdtemp()
archive = exactly(*struct.unpack(">Q", exactly(8)))
zipfile.ZipFile(io.BytesIO(archive)).extractall(folder)
sys.path.insert(0, os.path.join(folder, "code"))
from mortal_steps.hosts.relay import main
main(folder)
"""
CODE, PROJECT = "code", "project"
"""Folders of the archive: this package, and the user's files, among which the host works."""
TOLD = struct.Struct(">cQQ")
"""What is told: its kind, the number of the request or connection, bytes of what follows."""
ANSWER, LOST, OPENED, CONTENT, ALIVE = (bytes([kind]) for kind in b"alock")
ALIVE_EVERY_S = 5.0
"""How often relay and owner say that they are there."""
GONE_S = 300.0
"""Silence of its owner after which a relay ends."""
REACH = "reach"
"""Method of a fork that is the relay's."""
HOST = 0
"""Number of the host among its forks."""
BACKLOG = 2048

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True, slots=True)
class Begin:
    """The host, as `HostProcess` takes it, and a program that runs beside it."""

    handler: str
    options: Mapping[str, Any]
    passed_on: Collection[str]
    variables: Mapping[str, str]
    start_timeout_s: float
    server: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """Call a method of the host or of a fork; without one, start the host or make the fork."""

    number: int
    process: int
    method: str | None
    payload: Mapping[str, Any]
    timeout_s: float


class Relay:
    """Does what its owner says; processes are asked at the same time, each one thing at a time."""

    def __init__(self, begin: Begin, output: int, folder: str) -> None:
        """Work in the folder of the archive."""
        self._output, self._telling = output, threading.Lock()
        self._heard = time.monotonic()
        if begin.server:
            seen = visible_environment(os.environ, begin.passed_on)
            server = Child(begin.server, env=seen)  # in the folder that the machine begins in
            threading.Thread(target=_end_with, args=(server, begin.server[0]), daemon=True).start()
        os.chdir(os.path.join(folder, PROJECT))
        path = os.pathsep.join(filter(None, (os.path.join(folder, CODE), os.environ.get(PATH))))
        self._host = HostProcess(
            begin.handler,
            begin.options,
            passed_on=begin.passed_on,
            variables={**begin.variables, PATH: path},
            before_start=raise_file_limit,
            start_timeout_s=begin.start_timeout_s,
        )
        self._forks: dict[int, ForkedHost] = {}
        self._orders: dict[int, queue.SimpleQueue[Ask | None]] = {}
        self._ports: dict[int, int] = {}
        self._numbers = itertools.count(1)
        self._connections = Connections(partial(self.tell, CONTENT))
        for work in (self._be_alive, self._end_unheard):
            threading.Thread(target=work, daemon=True).start()

    def ask(self, order: Ask) -> None:
        orders = self._orders.get(order.process)
        if orders is None:
            if order.method is not None and order.process != HOST:
                self.tell(*_lost(order, HostLostError("ended", "it had ended before the call")))
                return
            orders = self._orders[order.process] = queue.SimpleQueue()
            serve = threading.Thread(target=self._serve, args=(order.process, orders), daemon=True)
            serve.start()
        orders.put(order)

    def end(self, process: int) -> None:
        """End a fork, unless it has been ended already: two threads may say so at once."""
        if process in self._forks:
            self._forks[process].kill()
        if (orders := self._orders.pop(process, None)) is not None:
            orders.put(None)

    def received(self, number: int, content: bytes) -> None:
        """Pass on what arrived for a connection; nothing is its end."""
        self._connections.received(number, content)

    def heard(self) -> None:
        self._heard = time.monotonic()

    def tell(self, kind: bytes, number: int, content: bytes) -> None:
        left = memoryview(TOLD.pack(kind, number, len(content)) + content)
        with self._telling:
            while left:
                left = left[os.write(self._output, left) :]

    def close(self) -> None:
        self._host.close()

    def _be_alive(self) -> None:
        while True:
            self.tell(ALIVE, 0, b"")
            time.sleep(ALIVE_EVERY_S)

    def _end_unheard(self) -> None:
        while time.monotonic() - self._heard < GONE_S:
            time.sleep(ALIVE_EVERY_S)
        os._exit(1)

    def _serve(self, process: int, orders: queue.SimpleQueue[Ask | None]) -> None:
        while (order := orders.get()) is not None:
            self.tell(*self._answer(order))
        if process in self._forks:
            self._forks.pop(process).close()

    def _answer(self, order: Ask) -> tuple[bytes, int, bytes]:
        answer: HostAnswer[Any] = HostAnswer(number=order.number)
        try:
            if order.method == REACH:
                value = self._reached(**order.payload)
                answer = HostAnswer(number=order.number, value=value)
            elif order.method is not None:
                host = self._host if order.process == HOST else self._forks[order.process]
                given = {"returns": Any, "timeout_s": order.timeout_s, **order.payload}
                value = host.call(order.method, **given)
                answer = HostAnswer(number=order.number, value=value)
            elif order.process == HOST:
                self._host.start()
            else:
                self._forks[order.process] = self._host.fork()
        except HostLostError as lost:
            return _lost(order, lost)
        except Exception as error:  # noqa: BLE001 - the boundary: any error travels to the owner
            failed = sent_error(error, traceback.format_exc())
            answer = HostAnswer(number=order.number, error=failed)
        return ANSWER, order.number, encode_answer(answer)

    def _reached(self, port: int) -> int:
        """Return the port here that stands for this one of the owner's machine."""
        if port not in self._ports:
            taking = socket.create_server((LOOPBACK, 0), backlog=BACKLOG)
            self._ports[port] = taking.getsockname()[1]
            threading.Thread(target=self._accept, args=(port, taking), daemon=True).start()
        return self._ports[port]

    def _accept(self, port: int, taking: socket.socket) -> None:
        while True:
            connection, _ = taking.accept()
            number = next(self._numbers)
            announce = partial(self.tell, OPENED, number, str(port).encode())
            self._connections.add(number, connection, announce)


def _lost(order: Ask, lost: HostLostError) -> tuple[bytes, int, bytes]:
    return LOST, order.number, json.dumps([lost.why, lost.how, lost.stack]).encode()


def _end_with(server: Child, name: str) -> None:
    logger.error("the server %s ended: exit code %d", name, server.wait())
    os._exit(1)


def main(folder: str) -> None:
    """Do what the owner at stdin says."""
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    source, output = os.fdopen(os.dup(0), "rb"), os.dup(1)
    os.dup2(2, 1)  # what anything prints must not look like an answer
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    relay = Relay(pickle.load(source), output, folder)
    try:
        while True:
            method, *given = pickle.load(source)
            relay.heard()
            getattr(relay, method)(*given)
    except EOFError:
        relay.close()
        os._exit(0)
