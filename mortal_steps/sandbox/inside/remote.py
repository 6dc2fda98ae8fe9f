"""The server as a command in a remote container: its owner talks to it over stdin and stdout.

The owner (`mortal_steps.places.modal`) starts `BOOT` there, then sends these modules before
anything else. Programs see no variable of Modal's.
"""

from __future__ import annotations

import os
import select

BOOT = """
import json, os, struct, sys, tempfile
kept = {name: value for name, value in os.environ.items() if not name.startswith("MODAL_")}
if len(kept) < len(os.environ):  # /proc shows programs the environment of the last exec
    os.execve(sys.executable, sys.orig_argv, kept)
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
from inside.remote import Stdio
from inside.server import serve
sys.path.remove(folder)
serve(Stdio(float(sys.argv[1])))
"""


class Stdio:
    """stdin and stdout as one connection. It ends if nothing arrives for `patience_s` seconds."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._in = os.dup(0)
        self._out = os.dup(1)
        os.dup2(2, 1)  # what a module prints when it is imported must not look like an answer
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)

    def fileno(self) -> int:
        return self._in

    def recv_into(self, buffer: memoryview, /) -> int:
        ready, _, _ = select.select([self._in], [], [], self._patience_s)
        return os.readv(self._in, [buffer]) if ready else 0

    def sendall(self, data: bytes | memoryview, /) -> None:
        left = memoryview(data)
        while left:
            left = left[os.write(self._out, left) :]
