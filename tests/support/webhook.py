"""An HTTP server on this machine that takes what it is sent."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

PATIENCE_S = 60
"""A machine that tests run on is slow at times; it takes a second or two."""


class Webhook:
    """Takes whatever is posted to it, and has nothing else."""

    def __init__(self) -> None:
        self.received: list[Any] = []
        """The JSON of each request."""
        self.answers = threading.Event()
        """Clear while requests are left without an answer."""
        self.answers.set()
        received, answers = self.received, self.answers

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
                answers.wait()
                self.send_response(204)
                self.end_headers()

            def do_GET(self) -> None:
                self.send_error(404)

            def log_message(self, *_: object) -> None:
                pass

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Take nothing more."""
        self.answers.set()
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, count: int) -> list[Any]:
        """Return what was received, once that is so much, or it takes too long."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.received) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        return self.received
