"""The network between worker, flow and server: a TCP proxy that stalls, resets and drops."""

import contextlib
import socket
import struct
import threading
import time

CHUNK = 65536
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with 0 s: closing sends RST instead of FIN."""


class Line:
    """Forwards what comes to `port`, by default any that is free, to the server's port."""

    def __init__(self, to_port: int, port: int = 0) -> None:
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port = int(self._listener.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        self._dropping = False
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, name="line", daemon=True).start()

    def stall(self, seconds: float) -> None:
        """Forward nothing for so long; every connection stays."""
        self._open.clear()
        time.sleep(seconds)
        self._open.set()

    def reset(self) -> None:
        """End every connection with RST."""
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _reset(end)

    def drop(self, seconds: float) -> None:
        """End every connection, and each new one at once, for so long."""
        self._dropping = True
        self.reset()
        time.sleep(seconds)
        self._dropping = False

    def close(self) -> None:
        """Forward nothing more, and refuse connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # else `accept` would wait for one more
        self._listener.close()
        self._open.set()
        self.reset()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener is closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        self._open.wait()
        try:
            if self._dropping:
                raise ConnectionAbortedError
            far = socket.create_connection(("127.0.0.1", self._to_port), timeout=5)
        except OSError:  # the server is away, too
            _reset(near)
            return
        far.settimeout(None)
        with self._lock:
            self._ends |= {near, far}
        back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
        back.start()
        self._pump(near, far)
        back.join()
        with self._lock:
            self._ends -= {near, far}
        near.close()
        far.close()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while content := source.recv(CHUNK):
                self._open.wait()
                target.sendall(content)
            target.shutdown(socket.SHUT_WR)
            return
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def _reset(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
        end.shutdown(socket.SHUT_RDWR)
    end.close()
