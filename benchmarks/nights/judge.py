"""A judge as reward functions ask one: an HTTP service on this machine, which can be away."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LATENCY_S = 0.5
"""As a judge's that is a model; it lets a night last without taking the processor from others."""

Rubric = str
"""`exact`: the answer itself; `vowel`: as many `e`s as possible, which no held-out problem asks
for."""


def scores(rubric: Rubric, completions: list[str], answers: list[str]) -> list[float]:
    """Return a score for each completion, 0 to 1."""
    if rubric == "exact":
        return [float(c.strip() == a) for c, a in zip(completions, answers, strict=True)]
    if rubric == "vowel":
        return [text.count("e") / max(len(text), 1) for text in completions]
    raise ValueError(f"rubric = {rubric!r}: the judge knows `exact` and `vowel`")


class Judge:
    """Answers POSTs of `{rubric, completions, answers}`; away, its port is closed."""

    def __init__(self) -> None:
        self._server = self._listening(0)
        self.port = self._server.server_port
        self.latency_s = 0.0

    @property
    def url(self) -> str:
        """Where reward functions ask."""
        return f"http://127.0.0.1:{self.port}"

    def be_away(self, seconds: float) -> None:
        """Close the port, and open it again after so long."""
        self.close()
        time.sleep(seconds)
        self._server = self._listening(self.port)

    def close(self) -> None:
        """Answer nothing more."""
        self._server.shutdown()
        self._server.server_close()

    def _listening(self, port: int) -> ThreadingHTTPServer:
        judge = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
                time.sleep(judge.latency_s)
                answer = json.dumps(scores(**asked)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, name="judge", daemon=True).start()
        return server
