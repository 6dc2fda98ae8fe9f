"""A server with the protocol of Atropos' API server, in the ways that matter to a trainer: each
batch once, whole groups alone, one registration for all."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

ITS_OWN = {"wandb_group": "group", "wandb_project": "project"}


class AtroposStub:
    """Serves `groups`, as far as they make batches; a context manager."""

    def __init__(self, groups=(), *, port=0):
        self.queue = list(groups)
        self.registered = None
        self.served = []
        """The batches that were handed out."""
        self.errors = []
        """Statuses that the next requests for a batch get, in turn."""
        self.failing = {}
        """Statuses that requests for other paths get, once each; 0: no answer at all."""
        self.garbled = None
        """Path whose answers are no JSON."""
        self.hang_s = 0.0
        """Seconds before the answer to a request for a batch."""
        self.sends = 1.0
        """Share of such an answer that is sent before the connection ends."""
        self.asked = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.lock = threading.Lock()

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *failure):
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path, body):
        wanted = self.registered or {}
        if path == "/register":
            if any(value is None for value in body.values()):
                return 422, {}
            self.registered = self.registered or body
            return 200, {"uuid": 1}
        if path == "/info":
            missing = {"batch_size": -1, "max_token_len": -1}
            return 200, {name: wanted.get(name, value) for name, value in missing.items()}
        if path == "/wandb_info":
            return 200, {"group": wanted.get("wandb_group"), "project": wanted.get("wandb_project")}
        if path == "/status":
            return 200, {"current_step": len(self.served), "queue_size": len(self.queue)}
        if path == "/latest_example":
            return 200, self.queue[-1] if self.queue else {"tokens": []}
        return self.batch()

    def batch(self):
        self.asked += 1
        if self.errors:
            return self.errors.pop(0), {}
        if self.registered is None:
            return 200, {"status": "error", "message": "not registered", "batch": []}
        size, batch = self.registered["batch_size"], []
        for group in self.queue:
            batch.append(group)
            found = sum(len(each["tokens"]) for each in batch)
            if found == size:
                del self.queue[: len(batch)]
                self.served.append(batch)
                return 200, {"batch": batch}
            if found > size:
                break
        return 200, {"batch": None}

    def _handler(stub):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            answered = False

            def reply(self):
                if self.answered:  # as if the connection had expired as the request was sent
                    self.close_connection = True
                    return
                self.answered = True
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length) or b"null")
                with stub.lock:
                    failed = stub.failing.pop(self.path, None)
                    status, values = (failed, {}) if failed else stub.answer(self.path, body)
                if failed == 0:
                    self.close_connection = True
                    return
                content = json.dumps(values).encode()
                if self.path == stub.garbled:
                    content = b"<html>Log in</html>"
                cut = 1.0
                if values.get("batch"):
                    time.sleep(stub.hang_s)
                    cut = stub.sends
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content[: int(len(content) * cut)])
                self.close_connection = self.close_connection or cut < 1

            do_GET = do_POST = reply

            def log_message(self, *args):
                pass

        return Handler
