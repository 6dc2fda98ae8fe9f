"""A hub of models on loopback that takes uploads: what huggingface_hub asks of one, and no more."""

import base64
import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class HubStub:
    """Keeps `repositories`: name -> (whether it is private, content of each file)."""

    def __init__(self):
        self.repositories = {}
        self.tokens = set()

    def create(self, asked):
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        self.repositories.setdefault(name, (asked.get("visibility") == "private", {}))
        return {"url": f"{self.url}/{name}", "name": name}

    def upload_modes(self, asked):
        files = [
            {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
            for one in asked["files"]
        ]
        return {"files": files}

    def commit(self, name, lines):
        for line in map(json.loads, lines):
            if line["key"] == "file":
                value = line["value"]
                content = base64.b64decode(value["content"])
                self.repositories[name][1][value["path"]] = content
        return {"success": True, "commitUrl": f"{self.url}/{name}/commit/1", "commitOid": "1"}


@contextlib.contextmanager
def hub_stub():
    """Yield a hub for the time of the block."""
    hub = HubStub()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            hub.tokens.add(self.headers["Authorization"])
            parts = self.path.partition("?")[0].strip("/").split("/")
            if parts == ["api", "repos", "create"]:
                answer = hub.create(json.loads(body))
            elif parts[4] == "preupload":
                answer = hub.upload_modes(json.loads(body))
            else:
                assert parts[4] == "commit", self.path
                answer = hub.commit("/".join(parts[2:4]), body.splitlines())
            content = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
