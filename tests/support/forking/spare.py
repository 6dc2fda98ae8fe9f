"""A fork of a worker of pytest from before anything happened to it. It becomes the worker's fork
server, which would have to import once more what the worker was forked with."""

import os
import pickle
import socket

from mortal_steps.compute.forkserver import LARGEST_ORDER
from mortal_steps.system import forks
from tests.support.forking.interpreter import be


class Spare:
    def __init__(self, not_its_own):
        """Fork this process, without these descriptors."""
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = os.fork()
        if self._pid == 0:
            for each in (self._orders.detach(), *not_its_own):
                os.close(each)
            _wait(theirs)
        theirs.close()

    def become(self, path, arguments, descriptors):
        """In place of `spawnv_passfds`, for an interpreter."""
        kept = [0, 1, 2, *map(int, descriptors)]
        order = (arguments[arguments.index("-c") :], kept, dict(os.environ), os.getcwd())
        with self._orders:
            socket.send_fds(self._orders, [pickle.dumps(order)], kept)
        return self._pid


def _wait(orders):
    """Become what is ordered; end if the worker has ended."""
    with orders:
        order, given, _, _ = socket.recv_fds(orders, LARGEST_ORDER, forks.MOST_DESCRIPTORS)
    if not order:
        os._exit(0)
    command, numbers, environment, folder = pickle.loads(order)
    be(command, numbers, given, environment, folder)
