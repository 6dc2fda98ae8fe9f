"""The machine of the nights: a server and a worker that are started again when they end, as systemd
would do it, and everything that those start."""

import contextlib
import os
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

MARK = "MORTAL_BENCHMARK_NIGHTS"
"""An environment variable that every process of the machine inherits."""
RESTART_S = 2.0
"""`RestartSec=` of a unit."""
END_S = 30.0


class Service:
    """A command that is started again whenever it ends."""

    def __init__(
        self, name: str, command: Sequence[str], folder: Path, env: Mapping[str, str]
    ) -> None:
        self.name = name
        self._command, self._folder, self._env = command, folder, dict(env)
        self._wanted = threading.Event()
        self._closed = False
        self.process: subprocess.Popen[bytes] | None = None
        self._keeper = threading.Thread(target=self._keep, name=name, daemon=True)
        self._keeper.start()

    def begin(self) -> None:
        """Start it, and again from now on."""
        self._wanted.set()

    def leave_off(self) -> None:
        """Start it no more until `begin`."""
        self._wanted.clear()

    def close(self) -> None:
        """End it in order."""
        self._closed = True
        self.leave_off()
        process = self.process
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        self._wanted.set()

    def _keep(self) -> None:
        while True:
            self._wanted.wait()
            if self._closed:
                return
            with (self._folder / f"{self.name}.log").open("ab") as log:
                self.process = subprocess.Popen(
                    self._command,
                    cwd=self._folder,
                    env=self._env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    # Of a shell's background jobs, children would inherit that it is ignored.
                    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                )
            self.process.wait()
            time.sleep(RESTART_S)


class Machine:
    """Its services, and a way to take its power away."""

    def __init__(self) -> None:
        self._mark = uuid.uuid4().hex
        self.services: list[Service] = []

    def environment(self, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a process of this machine."""
        return {**env, MARK: self._mark}

    def process_ids(self) -> list[int]:
        """Every process of the machine."""
        processes = psutil.process_iter(["environ"])  # None: it has ended, or is another user's
        return [p.pid for p in processes if (p.info["environ"] or {}).get(MARK) == self._mark]

    def lose_power(self, seconds: float) -> None:
        """SIGKILL to every process; the services start again after so long."""
        for service in self.services:
            service.leave_off()
        self.kill_all()
        time.sleep(seconds)
        for service in self.services:
            service.begin()

    def kill_all(self) -> None:
        """SIGKILL until nothing is left, also of what is being started meanwhile."""
        while processes := self.process_ids():
            for pid in processes:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.1)

    def close(self) -> None:
        """End the services in order, the last one first; then whatever is left."""
        for service in reversed(self.services):
            service.close()
        self.kill_all()
