"""A server that speaks OpenEnv's protocol, of a game in which the model counts; and one that may be
killed, and comes back after a while at the same port.

python -m tests.support.chaos.game_server PORT
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from tests.support.environments.openenv_server import Game, main
from tests.support.paths import ROOT

AWAY_S = 20.0
SESSIONS = 256
ADD = {
    "name": "add",
    "description": "Add an amount.",
    "input_schema": {"type": "object", "properties": {"amount": {"type": "integer"}}},
}


class Count(Game):
    """Slow enough to be killed in."""

    def reset(self, seed: int, target: int = 0, **row: Any) -> dict[str, Any]:
        self.drawn, self.total = random.Random(seed), 0
        self.target = target + self.drawn.randrange(3)
        return self.told(f" Reach {self.target}.")

    def step(self, **action: Any) -> dict[str, Any]:
        if action["type"] == "list_tools":
            return self.told("", tools=[ADD])
        time.sleep(0.05)
        self.total += action["arguments"]["amount"]
        text = f"total {self.total} {self.drawn.random():.6f}"
        result = {"content": [{"type": "text", "text": text}]}
        reward = 1.0 / (1.0 + abs(self.total - self.target))
        return self.told("", reward=reward, tool_name="add", result=result)


class GameServer:
    """The server as its killer has it; see `KillableServer`."""

    def __init__(self, folder: Path) -> None:
        self._log = folder / "game.log"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = int(free.getsockname()[1])
        self.address = f"127.0.0.1:{self._port}"
        self._coming_back: threading.Timer | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.support.chaos.game_server", str(self._port)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        while self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self._port)).close()
                return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError(f"the server of the game did not start; see {self._log}")

    def kill(self) -> None:
        """SIGKILL; nothing to do if it is gone."""
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def come_back(self) -> None:
        """Start it again after `AWAY_S`, beside what goes on here."""
        self._coming_back = threading.Timer(AWAY_S, self.start)
        self._coming_back.start()

    @property
    def away(self) -> bool:
        """Whether it is on its way back."""
        return self._coming_back is not None and self._coming_back.is_alive()

    def wait(self) -> None:
        """Return when it is back, at once if it is not away."""
        if self._coming_back is not None:
            self._coming_back.join()


if __name__ == "__main__":
    main(int(sys.argv[1]), SESSIONS, 0, Count)
