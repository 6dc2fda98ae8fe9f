"""Faults between a judge and who asks it: a stub of an OpenAI-compatible API behind a line."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from benchmarks.nights.line import Line
from benchmarks.reward_faults.batch import SHORTEST
from benchmarks.reward_faults.fault import Fault, Scene
from tests.support.judge_stub import Answer, JudgeStub, judged

REQUEST_S, CALL_S = 1.0, 5.0
"""Time limits of one request, and of one call of the reward."""


class Judge:
    """The stub, and the line to it, which can be cut."""

    def __init__(self) -> None:
        self.stub = JudgeStub(score=lambda body: float(len(judged(body)) - SHORTEST))
        self._port = urlsplit(self.stub.url).port or 0
        self.line = Line(self._port)
        self.url = f"http://127.0.0.1:{self.line.port}/v1"

    def connect_again(self) -> None:
        """After the line was closed."""
        self.line = Line(self._port, self.line.port)

    @property
    def term(self) -> Mapping[str, Any]:
        """What `[[rewards.terms]]` says."""
        asked = {"base_url": self.url, "timeout": REQUEST_S, "concurrency": 4}
        return {"type": "judge", "model": "m", **asked}


@contextlib.contextmanager
def judge() -> Iterator[Judge]:
    """One that works."""
    made = Judge()
    with made.stub:
        yield made
    made.line.close()


def _answers(name: str, answer: Answer, meanwhile: Callable[[Judge], None] | None = None) -> Fault:
    """Return the question about the struck completion gets this answer."""

    @contextlib.contextmanager
    def plant(judge: Judge, scene: Scene) -> Iterator[None]:
        first = threading.Lock()

        def instead(body: Mapping[str, Any]) -> Answer | None:
            if scene.mark not in judged(body):
                return None
            if scene.once and not first.acquire(blocking=False):
                return None
            if meanwhile is not None:
                threading.Timer(0.1, meanwhile, (judge,)).start()
            return answer

        judge.stub.always = instead
        yield
        judge.stub.always = lambda body: None

    return Fault(name=name, plant=plant)


@contextlib.contextmanager
def _refuses_connections(judge: Judge, scene: Scene) -> Iterator[None]:
    judge.line.close()
    if scene.once:
        back = threading.Timer(3.0, judge.connect_again)
        back.start()
        yield
        back.join()
    else:
        yield
        judge.connect_again()


FAULTS = (
    _answers("status 429", Answer(status=429, body="slow down")),
    _answers("status 500", Answer(status=500, body="oops")),
    Fault(name="refuses connections", strikes="shard", plant=_refuses_connections),
    _answers("connection reset", Answer(after_s=0.4), lambda judge: judge.line.reset()),
    _answers("half of the body", Answer(sends=0.5)),
    _answers("slower than the limit", Answer(after_s=1.5 * REQUEST_S)),
    _answers("a byte at a time", Answer(pause_s=0.1)),
    _answers("a body that is no gzip", Answer(headers={"Content-Encoding": "gzip"})),
    _answers("HTML with status 200", Answer(body="<html><body>0</body></html>")),
    _answers("no choices", Answer(body='{"choices": [], "score": 0}')),
    _answers("an answer that is no JSON", Answer(says="I would say 0.")),
    _answers("a score out of range", Answer(says='{"reason": "", "score": -1}')),
)
