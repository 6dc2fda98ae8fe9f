"""A plane for a test: started as a child process, watched and disturbed from here."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .server import ENVIRONMENT_FILE

PACKAGE = str(__package__)
ROOT = Path(__file__).parents[len(PACKAGE.split("."))]
"""Where this package is imported from."""
START_S = 180.0
STOP_S = 15.0


class ModalPlane:
    """A running control plane. It ends with the thread that started it.

        with ModalPlane(tmp_path / "plane") as plane:
            subprocess.run(["modal", "deploy", "-m", "my.app"], env={**os.environ, **plane.env})
            plane.kill(plane.wait_for("container_ready")["task"])

    Args:
        state: Directory of everything the plane writes; made if it is not there.
        arguments: More of the command line of `python -m tests.modal_plane`.
    """

    def __init__(self, state: Path, *arguments: str) -> None:
        self.directory = state
        self.arguments = arguments
        self.env: dict[str, str] = {}
        """What a client process needs in its environment."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> ModalPlane:
        self.directory.mkdir(parents=True, exist_ok=True)
        log = self.directory / "plane.log"
        command = [sys.executable, "-m", PACKAGE, "--state", str(self.directory)]
        command += ["--with-parent", *self.arguments]
        announced = self.directory / ENVIRONMENT_FILE
        announced.unlink(missing_ok=True)
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT
            )
        deadline = time.monotonic() + START_S
        while not announced.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise RuntimeError(f"the control plane did not start:\n{log.read_text()}")
            time.sleep(0.02)
        self.env = json.loads(announced.read_text())
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the plane and everything that it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_S)
            self._process.kill()
            self._process.wait()

    def _request(self, method: str, what: str, **query: str) -> bytes:
        url = f"{self.env['MODAL_PLANE_ADMIN_URL']}/{what}?{urllib.parse.urlencode(query)}"
        request = urllib.request.Request(url, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                body: bytes = answer.read()
                return body
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{what}: {error.read().decode()}") from error

    def state(self) -> dict[str, Any]:
        """Apps, functions, open containers (`tasks`), images, volumes, RPC counts, events."""
        state: dict[str, Any] = json.loads(self._request("GET", "state"))
        return state

    def events(self, kind: str = "", **details: Any) -> list[dict[str, Any]]:
        """The events so far that are of this kind and have these details, oldest first."""
        text = (self.directory / "events.jsonl").read_text()
        whole = text[: text.rfind("\n") + 1]  # the last line may be half written
        return [
            event
            for event in map(json.loads, whole.splitlines())
            if kind in ("", event["kind"])
            and all(event.get(name) == value for name, value in details.items())
        ]

    def tasks(self, function: str = "") -> list[dict[str, Any]]:
        """The open containers, of one function (`Name.*` for a class) or of all."""
        return [one for one in self.state()["tasks"] if function in ("", one["function"])]

    def wait_for(
        self, kind: str, *, count: int = 1, timeout_s: float = 120.0, **details: Any
    ) -> dict[str, Any]:
        """Wait until there are `count` such events; returns the last of them.

        Raises:
            TimeoutError: They did not come; tells the last events.
        """
        self.wait_until(
            lambda: len(self.events(kind, **details)) >= count,
            timeout_s,
            f"{count} {kind} {details}",
        )
        return self.events(kind, **details)[count - 1]

    def wait_until(
        self, condition: Callable[[], bool], timeout_s: float = 120.0, what: str = "condition"
    ) -> None:
        """Wait until the condition holds.

        Raises:
            TimeoutError: It did not; tells the last events.
        """
        deadline = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {timeout_s} s for {what}: {self.events()[-20:]}")
            time.sleep(0.02)

    def log(self, task: str) -> str:
        """What a container has printed; nothing, if it is only about to start."""
        log = self.directory / "tasks" / task / "log.txt"
        return log.read_text() if log.exists() else ""

    def preempt(self, task: str) -> None:
        """Take a container away: SIGINT, SIGKILL later, the same input in a new container."""
        self._request("POST", "preempt", task=task)

    def kill(self, task: str) -> None:
        """SIGKILL to all processes of a container."""
        self._request("POST", "kill", task=task)

    def drop_connections(self, seconds: float) -> None:
        """Cut clients, not containers, off; returns at once."""
        self._request("POST", "drop_connections", seconds=str(seconds))

    def restore_connections(self) -> None:
        """Let clients connect again before that time is over."""
        self._request("POST", "restore_connections")

    def fill_volume(self, name: str) -> None:
        """Let the volume take no more data, until `empty_volume`."""
        self._request("POST", "fill_volume", name=name)

    def empty_volume(self, name: str) -> None:
        """Let the volume take data again."""
        self._request("POST", "empty_volume", name=name)

    def run(
        self, *command: str, cwd: Path = ROOT, code: int = 0, env: dict[str, str] | None = None
    ) -> str:
        """Run a client process; its output, once it has ended with `code`."""
        done = subprocess.run(
            command,
            cwd=cwd,
            env={**os.environ, **self.env, **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=240,
        )
        assert done.returncode == code, done.stdout
        return done.stdout


@contextlib.contextmanager
def client_environment(plane: ModalPlane) -> Iterator[None]:
    """Make this process a client of the plane; every Modal object must be made inside."""
    import modal

    old = {name: os.environ.get(name) for name in plane.env}
    os.environ.update(plane.env)
    try:
        yield
    finally:
        modal.Client.from_env().close()  # the next plane is another server
        for name, value in old.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
