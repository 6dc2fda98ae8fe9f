"""Commands and scripts in processes that have imported torch and TRL before they begin.

Each is forked off the preloaded process of `training_forks`, and is an interpreter's of its own in
all that a command can see: folder, environment, output, exit code. So is what a run starts of the
modules in `forking/held.py`. Tests of how interpreters start use `subprocess`.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading

from tests.support.forking.holder import LIGHT, fork_what_is_started
from tests.support.forking.interpreter import end, exit_code, forget_pytest, run
from tests.support.training_forks import Given, check_preloaded, training_forks


class ForkedCommand:
    """The process of what follows `python` in a command line, as `subprocess.Popen` has it."""

    def __init__(self, arguments, *, cwd, env=None, stdout=None):
        reads, writes = None, os.dup(1)
        if stdout == subprocess.PIPE:
            os.close(writes)
            reads, writes = os.pipe()
        self.stdout = None if reads is None else os.fdopen(reads)
        told = (list(map(str, arguments)), str(cwd), dict(os.environ if env is None else env))
        # Whatever a failed test has left does not keep pytest from ending.
        forked = training_forks().Process(
            target=_begin, args=(*told, Given(writes), LIGHT.given()), daemon=True
        )
        forked.start()
        os.close(writes)
        self.pid = forked.pid
        self._process = forked

    @property
    def returncode(self):
        return self._process.exitcode

    def poll(self):
        return self.returncode

    def wait(self, timeout=None):
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return self.returncode

    def communicate(self, timeout=None):
        """Return all that it has printed once it has ended."""
        if not self.stdout.closed:
            reading = threading.Thread(target=self._read, daemon=True)
            reading.start()
            reading.join(timeout)
            if reading.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        self.wait(timeout)
        return self._said, None

    def _read(self):
        with self.stdout:
            self._said = self.stdout.read()

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def _begin(arguments, folder, environment, output, light):
    """Be the interpreter with these arguments, and end as it would."""
    check_preloaded()
    multiprocessing.current_process()._config["daemon"] = False  # it may have children
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(output)
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)  # noqa: SIM115
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    forget_pytest()
    LIGHT.take(light)
    fork_what_is_started()
    end(exit_code(run, *arguments))
