"""A judge in a process of its own, which may be killed: it writes down what it is asked and paid.

`python -m tests.support.judge_process PORT LOG` serves; `JudgeProcess` starts, kills and restarts
it on the same port.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.support.judge_stub import Answer, JudgeStub
from tests.support.paths import ROOT

THINKS_S = 0.1
START_S = 60.0


class JudgeProcess:
    """The process, and what it has noted in `log` over all of its lives."""

    def __init__(self, log: Path) -> None:
        self._log = log
        log.touch()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self.url = f"http://127.0.0.1:{self._port}/v1"
        self.start()

    def start(self) -> None:
        """Start it, for the first time or again, and wait until it listens."""
        command = [sys.executable, "-m", "tests.support.judge_process", str(self._port)]
        self._process = subprocess.Popen([*command, str(self._log)], cwd=ROOT)
        deadline = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1.0).close()
                break
            except ConnectionRefusedError:
                assert self._process.poll() is None and time.monotonic() < deadline
                time.sleep(0.02)
        self._note("started -")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def forget(self) -> None:
        """Begin to count anew."""
        self._log.write_text("")

    def in_flight(self) -> bool:
        """Whether it thinks about some question."""
        lately = self._log.read_text().rpartition("started")[2]
        return lately.count("asked") > lately.count("paid")

    def paid(self) -> Counter[str]:
        """How often each question was answered."""
        noted = (line.split() for line in self._log.read_text().splitlines())
        return Counter(question for what, question in noted if what == "paid")

    def _note(self, line: str) -> None:
        with self._log.open("a") as log:
            log.write(f"{line}\n")


def main() -> None:
    """Serve until killed."""
    port, log = int(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND)

    def note(what: str, body: Mapping[str, Any]) -> None:
        question = hashlib.sha256(json.dumps(body["messages"]).encode()).hexdigest()
        os.write(log, f"{what} {question}\n".encode())

    def thinks(body: Mapping[str, Any]) -> Answer:
        note("asked", body)
        return Answer(after_s=THINKS_S)

    class Stub(JudgeStub):
        def answer(self, body: Mapping[str, Any], key: str) -> Answer:
            found = super().answer(body, key)
            note("paid", body)
            return found

    stub = Stub(port=port)
    stub.always = thinks
    with stub:
        threading.Event().wait()


if __name__ == "__main__":
    main()
