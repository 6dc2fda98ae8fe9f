"""A server that speaks as OpenAI's chat completions do, and fails as it is told."""

import contextlib
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

PROMPT_TOKENS, COMPLETION_TOKENS = 100, 20
"""Of every answer."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a request gets."""

    status: int = 200
    says: str | None = None
    """The judge's words; None: a grade as it should be."""
    body: str | None = None
    """All of the response, in place of a chat completion."""
    media_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    after_s: float = 0.0
    hang_up: bool = False
    """Close the connection without an answer."""
    sends: float = 1.0
    """Share of the body that is sent; then the connection is closed."""
    pause_s: float = 0.0
    """After each byte of the body."""


def judged(body: Mapping[str, Any]) -> str:
    """Return the completion that a request with the default prompt is about."""
    said = str(body["messages"][-1]["content"])
    return said.partition("<answer>\n")[2].rpartition("\n</answer>")[0]


def by_length(body: Mapping[str, Any]) -> float:
    """Return the score that the stub gives where nothing else is said: the completion's length."""
    return float(len(judged(body)))


class JudgeStub:
    """Answers requests; a context manager. `next` holds what the next requests get, in turn."""

    def __init__(
        self,
        score: Callable[[Mapping[str, Any]], float] = by_length,
        key: str | None = None,
        port: int = 0,
    ) -> None:
        self.score = score
        self.key = key
        """The only key that is taken."""
        self.next: deque[Answer] = deque()
        self.always: Callable[[Mapping[str, Any]], Answer | None] = lambda body: None
        """What a request gets by what it asks; None: a grade."""
        self.requests: list[Mapping[str, Any]] = []
        self.paid: list[str] = []
        """The completion of each request that got a chat completion."""
        self.most_at_a_time = 0
        self._now = 0
        self._counting = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """The base_url."""
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        serving = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, body: Mapping[str, Any], key: str) -> Answer:
        """Return what a request gets."""
        with self._counting:
            self.requests.append(body)
            self._now += 1
            self.most_at_a_time = max(self.most_at_a_time, self._now)
            if self.key is not None and key != f"Bearer {self.key}":
                found = Answer(status=401, body=f"Incorrect API key provided: {key}")
            else:
                found = self.next.popleft() if self.next else self.always(body) or Answer()
        time.sleep(found.after_s)
        with self._counting:
            self._now -= 1
            if found.status == 200 and found.body is None and not found.hang_up:
                self.paid.append(judged(body))
        return found


def _handler(stub: JudgeStub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            answer = stub.answer(body, self.headers.get("Authorization", ""))
            if answer.hang_up:
                self.close_connection = True
                return
            content = (
                answer.body if answer.body is not None else completion(body, answer)
            ).encode()
            self.send_response(answer.status)
            for name, value in {"Content-Type": answer.media_type, **answer.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it waits no more
                self.end_headers()
                self._send(content[: int(answer.sends * len(content))], answer.pause_s)
            self.close_connection |= answer.sends < 1

        def _send(self, content: bytes, pause_s: float) -> None:
            if not pause_s:
                self.wfile.write(content)
                return
            for byte in content:
                self.wfile.write(bytes([byte]))
                time.sleep(pause_s)

        def log_message(self, *_: object) -> None:
            pass

    def completion(body: Mapping[str, Any], answer: Answer) -> str:
        says = answer.says
        if says is None:
            says = json.dumps({"reason": f"{len(judged(body))} long", "score": stub.score(body)})
        usage = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": COMPLETION_TOKENS}
        return json.dumps({"choices": [{"message": {"content": says}}], "usage": usage})

    return Handler
