"""What was forked by a holder, as its owner sees it."""

import contextlib
import functools
import os
import pickle
import select
import signal
import socket
import subprocess
import threading

from mortal_steps.system import forks
from mortal_steps.system.asked import AskedProcess


class ForkedChild:
    """As `Child`."""

    def __init__(
        self, holder, command, pass_fds, *, output, env, cwd=None, stdin=None, errors=None
    ):
        """`errors`: where standard error goes, if not to `output`."""
        self.returncode = None
        self._looking = threading.Lock()
        self._answers, answers = socket.socketpair()
        reads, told = os.pipe()
        self._told = os.fdopen(reads, "rb")
        order = (command, list(pass_fds), dict(env), str(cwd or os.getcwd()))
        if output is not None and not isinstance(output, int):
            output = output.fileno()
        printed = (1, 2) if output is None else (output, output if errors is None else errors)
        with answers, open(os.devnull) as nothing:
            stdin = nothing.fileno() if stdin is None else stdin
            passed = [answers.fileno(), told, stdin, *printed, *pass_fds]
            socket.send_fds(holder, [pickle.dumps(order)], passed)
        os.close(told)

    @functools.cached_property
    def pid(self):
        with self._told:
            told = self._told.read(forks.STATUS.size)
        assert told, "it ended before it could tell its id"
        return forks.STATUS.unpack(told)[0]

    def poll(self):
        with self._looking:
            if self.returncode is None and select.select([self._answers], [], [], 0)[0]:
                self._read()
        return self.returncode

    def wait(self, timeout=None):
        with self._looking:
            if self.returncode is None:
                if not select.select([self._answers], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
                self._read()
        return self.returncode

    def _read(self):
        status = self._answers.recv(forks.STATUS.size)
        self.returncode = forks.STATUS.unpack(status)[0] if status else -signal.SIGKILL
        self._answers.close()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        with contextlib.suppress(OSError):  # it has ended
            self._answers.shutdown(socket.SHUT_WR)

    def kill_all(self):
        self.kill()
        self.wait()


class ForkedAsked(ForkedChild):
    """As `AskedProcess`."""

    ask, answer, _answered = AskedProcess.ask, AskedProcess.answer, AskedProcess._read
    stdout = None

    def __init__(self, holder, module, *, output, env):
        reads, writes = os.pipe()
        theirs, stdin = os.pipe()
        self.stdin = os.fdopen(stdin, "wb")
        command = [module, str(writes)]
        super().__init__(holder, command, [writes], output=output, env=env, stdin=theirs)
        os.close(writes)
        os.close(theirs)
        self._content = b""
        self._reading = threading.Thread(target=self._answered, args=(reads,), daemon=True)
        self._reading.start()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.wait()
