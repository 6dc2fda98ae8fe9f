"""The server as a command of a container that is far away: it is spoken to over stdin and stdout.

Its owner starts `BOOT` there and sends, first of all, these modules (`mortal_steps.compute.modal`).
"""

from __future__ import annotations

import os
import select

from .server import serve

BOOT = """
import json, os, struct, sys, tempfile
def exactly(size):
    arrived = b""
    while len(arrived) < size:
        arrived += os.read(0, size - len(arrived)) or sys.exit("nobody is there")
    return arrived
folder = tempfile.mkdtemp()
os.mkdir(os.path.join(folder, "inside"))
modules = json.loads(exactly(struct.unpack(">II", exactly(8))[0]))
for name, text in modules["files"].items():
    with open(os.path.join(folder, "inside", name), "w") as file:
        file.write(text)
sys.path.append(folder)
from inside.remote import main
sys.path.remove(folder)
main(float(sys.argv[1]))
"""


class Stdio:
    """stdin and stdout as one connection. Nothing said for `patience_s` is its end."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._in = os.dup(0)
        self._out = os.dup(1)
        os.dup2(2, 1)  # what a module prints when it is imported is no answer
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def fileno(self) -> int:
        """See `wire.Connection`."""
        return self._in

    def recv_into(self, buffer: memoryview, /) -> int:
        """See `wire.Connection`."""
        ready, _, _ = select.select([self._in], [], [], self._patience_s)
        return os.readv(self._in, [buffer]) if ready else 0

    def sendall(self, data: bytes | memoryview, /) -> None:
        """See `wire.Connection`."""
        left = memoryview(data)
        while left:
            left = left[os.write(self._out, left) :]


def main(patience_s: float) -> None:
    """Serve until the owner is gone or silent for so long; whoever kept the container ends it."""
    for name in [name for name in os.environ if name.startswith("MODAL_")]:
        del os.environ[name]
    serve(Stdio(patience_s))
