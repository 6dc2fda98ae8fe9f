"""HTTP services on this machine: each answers requests with the text that a function returns."""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Service:
    """Answers requests in threads of its own; away, its port is closed."""

    def __init__(self, answer: Callable[[Any], str]) -> None:
        """`answer` is given the JSON of a POST, or None for a GET."""
        self._answer = answer
        self._server = self._listening(0)
        self._port = self._server.server_port
        self.url = f"http://127.0.0.1:{self._port}"

    def be_away(self, seconds: float) -> None:
        """Close the port, and open it again after so long."""
        self.close()
        time.sleep(seconds)
        self._server = self._listening(self._port)

    def close(self) -> None:
        """Answer nothing more."""
        self._server.shutdown()
        self._server.server_close()

    def _listening(self, port: int) -> ThreadingHTTPServer:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self._say(json.loads(self.rfile.read(int(self.headers["content-length"]))))

            def do_GET(self) -> None:
                self._say(None)

            def _say(self, asked: Any) -> None:
                content = answer(asked).encode()
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.send_header("content-length", str(len(content)))
                with contextlib.suppress(ConnectionError):  # the fault of the hour killed who asked
                    self.end_headers()
                    self.wfile.write(content)

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server
