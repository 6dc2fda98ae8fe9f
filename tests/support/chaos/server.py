"""A Prefect server that may be killed and started again: same port, same database."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Self

from mortal.server.files import DATABASE, SQLITE, VARIABLE
from mortal.server.local_server import answers
from mortal.server.process import SERVER_SETTINGS
from tests.support.database import new_database

START_TIMEOUT_S = 180.0


class KillableServer:
    """A Prefect server with a port and a database of its own, its files in `home`."""

    def __init__(self, home: Path) -> None:
        self._home = home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._database = new_database(home) or {VARIABLE: f"{SQLITE}:///{home / DATABASE}"}
        self.api_url = f"http://127.0.0.1:{self._port}/api"
        self._process: subprocess.Popen[bytes] | None = None
        self._coming_back: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *ended: object) -> None:
        self.wait()
        self.kill()

    def start(self) -> None:
        """Start it, for the first time or again, and wait until it answers."""
        log_path = self._home / "server.log"
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "prefect", "server", "start"),
                    *("--host", "127.0.0.1", "--port", str(self._port)),
                ],
                env={
                    **os.environ,
                    **SERVER_SETTINGS,
                    "PREFECT_HOME": str(self._home),
                    **self._database,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_TIMEOUT_S
        while not answers(self._port):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the Prefect server did not start; see {log_path}")
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL to the server and its children; nothing to do if it is gone."""
        if self._process is not None and self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def come_back(self) -> None:
        """Start it again beside what goes on here."""
        self._coming_back = threading.Thread(target=self.start, daemon=True)
        self._coming_back.start()

    @property
    def away(self) -> bool:
        """Whether it is on its way back."""
        return self._coming_back is not None and self._coming_back.is_alive()

    def wait(self) -> None:
        """Return when it is back, at once if it is not away."""
        if self._coming_back is not None:
            self._coming_back.join()
