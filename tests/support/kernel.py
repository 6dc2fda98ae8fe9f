"""A kernel of Jupyter's, whose cells can be interrupted."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from jupyter_client.blocking import BlockingKernelClient
from jupyter_client.manager import KernelManager, start_new_kernel

from tests.support.deployments import PATIENCE_S


class Kernel:
    """The kernel of a notebook in some folder."""

    def __init__(self, manager: KernelManager, client: BlockingKernelClient) -> None:
        self._manager, self._client = manager, client
        self._cell = ""

    def start(self, code: str) -> None:
        """Begin to run a cell."""
        self._cell = self._client.execute(code)

    def interrupt(self) -> None:
        """Do what the notebook's button does."""
        self._manager.interrupt_kernel()

    def ended(self) -> tuple[str, str]:
        """Wait for the end of the cell; return `ok` or the name of what it raised, and what it has
        printed."""
        deadline = time.monotonic() + PATIENCE_S
        reply = self._client.get_shell_msg(timeout=PATIENCE_S)
        while reply["parent_header"].get("msg_id") != self._cell:
            reply = self._client.get_shell_msg(timeout=PATIENCE_S)
        printed = []
        while time.monotonic() < deadline:
            message = self._client.get_iopub_msg(timeout=PATIENCE_S)
            if message["parent_header"].get("msg_id") != self._cell:
                continue
            if message["msg_type"] == "stream":
                printed.append(message["content"]["text"])
            if message["content"].get("execution_state") == "idle":
                break
        content = reply["content"]
        return content["status"] if content["status"] == "ok" else content["ename"], "".join(
            printed
        )

    def run(self, code: str) -> str:
        """Return what a cell prints, which has to end well."""
        self.start(code)
        status, printed = self.ended()
        assert status == "ok", f"{status}: {printed}"
        return printed

    def poll(self) -> None:
        """Return None, as of a process that is alive."""


@contextlib.contextmanager
def kernel(folder: Path, env: dict[str, str]) -> Iterator[Kernel]:
    """Yield a kernel that works in `folder`, for the time of the block."""
    manager, client = start_new_kernel(cwd=str(folder), env=env)
    try:
        yield Kernel(manager, client)
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
