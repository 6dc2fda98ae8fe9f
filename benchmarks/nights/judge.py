"""A judge as reward functions ask one: an HTTP service on this machine, which can be away."""

import json
import time
from typing import Any

from benchmarks.nights.answering import Service

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


class Judge(Service):
    """Answers POSTs of `{rubric, completions, answers}`."""

    def __init__(self) -> None:
        self.latency_s = 0.0
        super().__init__(self._judged)

    def _judged(self, asked: Any) -> str:
        time.sleep(self.latency_s)
        return json.dumps(scores(**asked))
