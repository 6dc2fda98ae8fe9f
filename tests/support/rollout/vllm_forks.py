"""Interpreters with vLLM, forked off one that has imported it, as importing it takes a core some
8 s: `python -m tests.support.rollout.vllm_forks ORDERS`."""

import functools
import importlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile

from mortal_steps.rollout.engines.vllm.library import import_vllm
from mortal_steps.system.imports import imports_without_gc
from tests.support.forking.children import ForkedChild
from tests.support.forking.interpreter import serve
from tests.support.paths import ROOT, VLLM_PYTHON

IMPORTED_BY_ENGINES = ("vllm.entrypoints.llm", "vllm.v1.worker.cpu_worker")


class VllmForks:
    """The process that has imported vLLM. It ends with this one."""

    def __init__(self):
        self._orders, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115
        with theirs:
            self._process = subprocess.Popen(
                [VLLM_PYTHON, "-m", __name__, str(theirs.fileno())],
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
                pass_fds=[theirs.fileno()],
                stdout=self._said,
                stderr=self._said,
            )

    def said(self):
        """Return what it has printed while it imported."""
        return os.pread(self._said.fileno(), 1_000_000, 0).decode()

    def run(self, arguments, timeout_s):
        """Return the exit code, the output and the errors of what follows `python`."""
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = ForkedChild(
                self._orders,
                list(arguments),
                [],
                output=output.fileno(),
                errors=errors.fileno(),
                env=os.environ,
                cwd=ROOT,
            )
            try:
                code = child.wait(timeout_s)
            finally:
                child.kill()
            said = []
            for each in (output, errors):
                each.seek(0)
                said.append(each.read().decode())
            return code, *said

    def child(
        self, command, *, pass_fds, output=None, env=None, cwd=None, scratch="", continues=False
    ):
        """In place of `Child`, for the interpreter with vLLM."""
        assert command[:2] == [str(VLLM_PYTHON), "-P"]
        if scratch:
            shutil.rmtree(scratch)  # where an interpreter would find this package
        env = os.environ if env is None else env
        return ForkedChild(self._orders, command[2:], pass_fds, output=output, env=env, cwd=cwd)


@functools.cache
def vllm_forks():
    return VllmForks()


if __name__ == "__main__":
    with imports_without_gc():
        import_vllm()
        for name in IMPORTED_BY_ENGINES:
            importlib.import_module(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
