"""A host on another machine, as its owner sees it: asked like a `HostProcess`, through a link to
the relay there. Where the link breaks, the host is lost, with all its forks."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import json
import pickle
import socket
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import mortal_steps
from mortal_steps.hosts.answers import (
    LARGEST_ANSWER,
    NoAnswerError,
    decode_answer,
    received_error,
)
from mortal_steps.hosts.base import Announced, HostLostError
from mortal_steps.hosts.connections import Connections
from mortal_steps.hosts.process import LOOPBACK
from mortal_steps.hosts.relay import (
    ANSWER,
    CODE,
    CONTENT,
    HOST,
    LOST,
    OPENED,
    PROJECT,
    REACH,
    TOLD,
    Ask,
    Begin,
)
from mortal_steps.system.frames import HEADER


class Link(Protocol):
    """Input and output of `relay.BOOT` on another machine."""

    def send(self, content: bytes) -> None:
        """Write it, some time after what was sent before; a link that is lost takes it, too."""
        ...

    def close(self) -> None:
        """End the machine."""
        ...


Connect = Callable[[Callable[[bytes], None], Callable[[str], None]], Link]
"""Makes a link, given what takes its output, and what is told how it ended. Whatever the first
raises ends the link, too."""

CONNECT_S = 5.0
"""How long a connection to what listens here may take."""

_Begun = tuple[int, Future[tuple[bytes, bytes]]]
"""Number of a request, and the kind and content of its answer."""


class RemoteHost:
    """Calls methods of a handler on another machine, to which `connect` makes a link at the first
    need and again after it was lost; `files` are the user's, by their path from the working folder.
    `before_start` is called before each connection. For one thread at a time, but for `fork`."""

    def __init__(
        self,
        connect: Connect,
        begin: Begin,
        files: Mapping[str, Path],
        before_start: Callable[[], None] | None = None,
    ) -> None:
        self._connect, self._begin = connect, begin
        self._files, self._before_start = files, before_start
        self._relayed: _Relayed | None = None
        self._forks = itertools.count(HOST + 1)
        self._starting = threading.RLock()

    def start(self) -> None:
        """See `HostProcess.start`."""
        relayed = self._connected()
        relayed.result(relayed.begin(HOST, None, 0.0, {}), None)

    def call(self, method: str, *, returns: Any, timeout_s: float, **payload: Any) -> Any:
        """See `HostProcess.call`."""
        relayed = self._relayed or self._connected()
        return relayed.result(relayed.begin(HOST, method, timeout_s, payload), returns)

    def fork(self) -> RemoteFork:
        """See `HostProcess.fork`."""
        relayed = self._connected()
        try:
            return RemoteFork(relayed, next(self._forks))
        except HostLostError:
            if relayed.ended is None:
                raise
        return RemoteFork(self._connected(), next(self._forks))

    def close(self) -> None:
        relayed, self._relayed = self._relayed, None
        if relayed is not None:
            relayed.close()

    def _connected(self) -> _Relayed:
        with self._starting:
            if self._relayed is None or self._relayed.ended is not None:
                self.close()
                if self._before_start is not None:
                    self._before_start()
                self._relayed = _Relayed(self._connect, archive(self._files), self._begin)
            return self._relayed


class RemoteFork:
    """Calls methods of a handler's copy in a fork of its host there."""

    def __init__(self, relayed: _Relayed, number: int) -> None:
        self._relayed, self._number = relayed, number
        self._is_ended = False
        self._announced: deque[tuple[Announced, _Begun]] = deque()
        try:
            relayed.result(relayed.begin(number, None, 0.0, {}), None)
        except BaseException:
            self.kill()
            raise

    def call(self, method: str, *, returns: Any, timeout_s: float, **payload: Any) -> Any:
        """See `Host.call`."""
        asked = method, timeout_s, payload
        if not self._announced:
            self.announce([asked])
        announced, begun = self._announced.popleft()
        assert asked == announced, f"{asked} is asked for, and {announced} was announced"
        try:
            return self._relayed.result(begun, returns)
        except HostLostError:
            self.kill()
            raise

    def announce(self, calls: Sequence[Announced]) -> None:
        """See `Fork.announce`."""
        self._announced += [(each, self._relayed.begin(self._number, *each)) for each in calls]

    def spoilt(self, what: str) -> HostLostError:
        """See `Host.spoilt`."""
        self.kill()
        return _spoilt(what)

    def reach(self, port: int) -> int:
        """See `Fork.reach`."""
        found: int = self.call(REACH, returns=int, timeout_s=0.0, port=port)
        return found

    def kill(self) -> None:
        if not self._is_ended:
            self._is_ended = True
            self._relayed.order("end", self._number)

    def close(self) -> None:
        self.kill()


class _Relayed:
    """What one relay does, until it is lost. For several threads."""

    def __init__(self, connect: Connect, archived: bytes, begin: Begin) -> None:
        self.ended: str | None = None
        """How it ended."""
        self._numbers = itertools.count(1)
        self._pending: dict[int, Future[tuple[bytes, bytes]]] = {}
        self._ending = threading.Lock()
        self._arrived = bytearray()
        self._reachable: set[int] = set()
        self._connections = Connections(lambda *given: self.order("received", *given))
        self._link = connect(self._receive, self._lose)
        self._link.send(HEADER.pack(len(archived)) + archived + pickle.dumps(begin))

    def order(self, method: str, *given: object) -> None:
        self._link.send(pickle.dumps((method, *given)))

    def begin(
        self, process: int, method: str | None, timeout_s: float, payload: Mapping[str, Any]
    ) -> _Begun:
        """Have it called."""
        number, told = next(self._numbers), Future[tuple[bytes, bytes]]()
        with self._ending:
            if self.ended is not None:
                told.set_exception(HostLostError("ended", self.ended))
            else:
                self._pending[number] = told
        if method == REACH:
            self._reachable.add(payload["port"])
        asked = Ask(
            number=number, process=process, method=method, payload=payload, timeout_s=timeout_s
        )
        self.order("ask", asked)
        return number, told

    def result(self, begun: _Begun, returns: Any) -> Any:
        """Return what comes of it, as `Host.call` does."""
        number, told = begun
        kind, content = told.result()
        if kind == LOST:
            raise _lost_there(content)
        try:
            answer = decode_answer(content, number, returns)
            error = received_error(answer.error) if answer.error is not None else None
        except NoAnswerError as wrong:
            raise _spoilt(str(wrong)) from None
        if error is not None:
            raise error
        return answer.value

    def close(self) -> None:
        self._lose("it was closed")
        self._link.close()

    def _receive(self, content: bytes) -> None:
        if self.ended is not None:
            return
        self._arrived += content
        while len(self._arrived) >= TOLD.size and self.ended is None:
            kind, number, size = TOLD.unpack_from(self._arrived)
            if size > LARGEST_ANSWER:
                raise _spoilt(f"what it told is {size} bytes long")
            if len(self._arrived) < TOLD.size + size:
                return
            told = bytes(self._arrived[TOLD.size : TOLD.size + size])
            del self._arrived[: TOLD.size + size]
            if kind in (ANSWER, LOST) and number in self._pending:
                self._pending.pop(number).set_result((kind, told))
            elif kind == OPENED:
                self._connect(number, int(told))
            elif kind == CONTENT:
                self._connections.received(number, told)

    def _connect(self, number: int, port: int) -> None:
        try:
            if port not in self._reachable:
                raise ConnectionRefusedError(port)
            connection = socket.create_connection((LOOPBACK, port), timeout=CONNECT_S)
        except OSError:  # or nobody listens any more
            self.order("received", number, b"")
            return
        connection.settimeout(None)
        self._connections.add(number, connection)

    def _lose(self, how: str) -> None:
        with self._ending:
            self.ended = self.ended or how
            pending, self._pending = self._pending, {}
        self._connections.close()
        for each in pending.values():
            each.set_exception(HostLostError("ended", how))


def archive(files: Mapping[str, Path]) -> bytes:
    """Return MORTAL, whose public face users' code may import, and the user's files, as
    `relay.BOOT` unpacks them."""
    content, face = io.BytesIO(), importlib.util.find_spec("mortal")
    packages = [Path(mortal_steps.__file__).parent]
    if face is not None and face.origin is not None:
        packages.append(Path(face.origin).parent)
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
        for package in packages:
            for path in sorted(package.rglob("*.py")):
                packed.write(path, f"{CODE}/{package.name}/{path.relative_to(package)}")
        packed.writestr(f"{PROJECT}/", "")
        for name, path in sorted(files.items()):
            packed.write(path, f"{PROJECT}/{name}")
    return content.getvalue()


def _lost_there(content: bytes) -> HostLostError:
    with contextlib.suppress(ValueError):
        match json.loads(content):
            case ["timeout" | "ended" | "spoilt" as why, str(how), str(stack)]:
                return HostLostError(why, how, stack)
    return _spoilt("it does not say how a process was lost")


def _spoilt(what: str) -> HostLostError:
    return HostLostError("spoilt", f"wrote into the connection of its process: {what}")
