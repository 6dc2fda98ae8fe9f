"""Workers of pytest-xdist, forked off one process that has imported what tests train with:
`python -m tests.support.forking.workers ORDERS`."""

import functools
import importlib
import os
import pickle
import socket
import subprocess
import sys

from execnet import gateway_io

from mortal_steps.compute.forkserver import LARGEST_ORDER
from mortal_steps.system import forks
from tests.support import training_forks
from tests.support.forking.children import ForkedChild
from tests.support.forking.interpreter import end, exit_code, run
from tests.support.forking.spare import Spare
from tests.support.paths import ROOT


def fork_workers():
    """Have xdist fork its workers, where it would start interpreters."""
    gateway_io.Popen2IOMaster = _WorkerIO


class _WorkerIO(gateway_io.Popen2IOMaster):
    def __init__(self, args, execmodel):
        theirs, stdin = os.pipe()
        stdout, written = os.pipe()
        command = args[args.index("-c") :]
        self.popen = ForkedChild(
            _orders(), command, [written], output=2, env=os.environ, stdin=theirs
        )
        os.close(theirs)
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


def main():
    """Import, then fork workers, until pytest ends."""
    orders = socket.socket(fileno=int(sys.argv[1]))
    importlib.import_module(training_forks.PRELOADED)
    forked = forks.serve_forks(orders, largest=LARGEST_ORDER)
    if forked is None:
        os._exit(0)
    orders.close()
    order, (told, *streams) = forked
    with open(told, "wb") as asks:
        asks.write(forks.STATUS.pack(os.getpid()))
    command, _, environment, folder = pickle.loads(order)
    training_forks.SPARE = Spare(streams)
    stdin, _, stderr, stdout = streams
    for stream, own in enumerate((stdin, stdout, stderr)):
        os.dup2(own, stream)
    for own in streams:
        os.close(own)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.update(environment)
    end(exit_code(run, *command))


if __name__ == "__main__":
    main()
