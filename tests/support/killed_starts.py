"""Commands that are ended while they start, where whatever they leave behind can be told."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mortal.server.files import DATABASE, try_lock
from mortal_steps.runs.lease import is_driven
from mortal_steps.store import RunStore
from tests.support.database import postgresql_database
from tests.support.prefect_database import put_database

SIGNALS = (signal.SIGKILL, signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
GONE_WITHIN_S = 60.0
"""How long whatever was started may take to end; busy machines are slow."""


class Ground:
    """A project in `folder`, with all that its commands leave anywhere below it."""

    def __init__(self, folder: Path, config: str, *overrides: str) -> None:
        self.folder = folder
        self._train = ["train", config]
        for override in overrides:
            self._train += ["--set", override]
        self._state = folder / "state"
        self._temporary = folder / "tmp"
        self._temporary.mkdir()
        put_database(self.server_home / DATABASE)
        self._mark = f"MORTAL_STATE_DIR={self._state}"
        self.env = {
            **{name: value for name, value in os.environ.items() if name != "PREFECT_API_URL"},
            "MORTAL_STATE_DIR": str(self._state),
            "TMPDIR": str(self._temporary),
            "PREFECT_HOME": str(folder / "prefect"),
            "OMP_NUM_THREADS": "1",
            "HF_HUB_OFFLINE": "1",
            **postgresql_database(),
        }

    @property
    def server_home(self) -> Path:
        """The folder of the server's files."""
        return self._state / "prefect"

    def start(self, run_id: str, *options: str) -> subprocess.Popen[str]:
        """Begin the run, or go on with it where there is one."""
        there = (self.folder / "runs" / run_id / "run.json").exists()
        words = ["resume", run_id] if there else [*self._train, "--run-id", run_id]
        return self.mortal(*words, *options)

    def mortal(self, *words: str) -> subprocess.Popen[str]:
        """Any command."""
        return subprocess.Popen(
            [sys.executable, "-m", "mortal", *words],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def begin(self, run_id: str) -> None:
        """Make the run, and kill the process that did."""
        process = self.start(run_id)
        while not (self.folder / "runs" / run_id / "run.json").exists():
            if process.poll() is not None:
                raise RuntimeError(process.communicate()[0])
            time.sleep(0.05)
        process.kill()
        process.communicate()

    def strike(self, run_id: str, sign: signal.Signals, after_s: float) -> dict[str, object]:
        """Start, end by a signal, wait until nothing is left or for a minute."""
        process = self.start(run_id)
        time.sleep(after_s)
        struck = time.monotonic()
        process.send_signal(sign)
        left = self.wait_until_nothing_is_left(run_id)
        took = time.monotonic() - struck
        output = process.communicate()[0] if process.poll() is not None else ""
        command = process.args[3] if isinstance(process.args, list) else ""
        return {
            "command": command,
            "signal": sign.name,
            "after_s": round(after_s, 2),
            "gone_s": round(took, 2),
            "left": left,
            "last_line": (output.strip().splitlines() or [""])[-1][:100],
        }

    def wait_until_nothing_is_left(self, run_id: str) -> list[str]:
        """What is left at last; returns at once when that is nothing, and else after a minute."""
        deadline = time.monotonic() + GONE_WITHIN_S
        while (left := self.left(run_id)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return left

    def left(self, run_id: str) -> list[str]:
        """Return what is there that should not be."""
        found = [f"process {pid}: {command}" for pid, command in self._processes()]
        found += [f"temporary file {path}" for path in self._temporary.rglob("*")]
        found += [str(path) for path in self.server_home.glob("server.json")]
        found += [str(path) for path in self.server_home.glob("*.lock") if not _is_free(path)]
        run = self.folder / "runs" / run_id
        if (run / "lock").exists() and (is_driven(RunStore(run)) or not _is_free(run / "lock")):
            found.append(f"lease of {run}")
        return found

    def _processes(self) -> list[tuple[int, str]]:
        """Those that inherited the ground's environment."""
        found = []
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                if self._mark not in (proc / "environ").read_text(errors="replace").split("\0"):
                    continue
                command = (proc / "cmdline").read_text(errors="replace").replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            found.append((int(proc.name), command))
        return found


def _is_free(path: Path) -> bool:
    with path.open("a") as lock:
        return try_lock(lock, fcntl.LOCK_EX)
