"""Workers of pytest-xdist, forked off one process that has imported what tests train with:
`python -m tests.support.forking.workers ORDERS`."""

import functools
import importlib
import os
import socket
import subprocess
import sys

from execnet import gateway_io

from tests.support import training_forks
from tests.support.forking.children import ForkedChild
from tests.support.forking.interpreter import serve
from tests.support.forking.spare import Spare
from tests.support.paths import ROOT


def fork_workers():
    """Have xdist fork its workers, where it would start interpreters."""
    gateway_io.Popen2IOMaster = _WorkerIO


class _WorkerIO(gateway_io.Popen2IOMaster):
    def __init__(self, args, execmodel):
        read, stdin = os.pipe()
        stdout, written = os.pipe()
        command = args[args.index("-c") :]
        streams = {"stdin": read, "output": written, "errors": 2}
        self.popen = ForkedChild(_orders(), command, [], env=os.environ, **streams)
        os.close(read)
        os.close(written)
        pipes = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        gateway_io.Popen2IO.__init__(self, *pipes, execmodel)


@functools.cache
def _orders():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
    return ours


def _keep_a_spare(streams):
    training_forks.SPARE = Spare(streams)


if __name__ == "__main__":
    importlib.import_module(training_forks.PRELOADED)
    serve(socket.socket(fileno=int(sys.argv[1])), _keep_a_spare)
