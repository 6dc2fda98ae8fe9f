"""Judges of a run, asked by a test."""

from pathlib import Path
from typing import Any

from mortal.rewards.examples import LLMJudgeEnvironment
from mortal_steps.rewards.judge.ledger import JudgedRun, use_run
from tests.support.judge_stub import Answer, JudgeStub

TEXTS = ["", "a", "bb", "ccc", "dddd", "eeeee"]
SCORES = [float(len(text)) for text in TEXTS]
BUSY = Answer(status=503, body="overloaded")
FOR_LONG = {"Retry-After": "1e9"}
"""Headers of an outage that lasts longer than any call: it is not asked again."""


def in_run(run_dir: Path, call_timeout_s: float = 60.0) -> None:
    """As in a new process of the run."""
    use_run(JudgedRun(run_dir=str(run_dir), call_timeout_s=call_timeout_s))


def make(stub: JudgeStub, **options: Any) -> LLMJudgeEnvironment:
    return LLMJudgeEnvironment("m", **{"base_url": stub.url, **options})


def ask(judge: LLMJudgeEnvironment, texts: list[str] = TEXTS, **columns: Any) -> Any:
    return judge(prompts=["1 + 1"] * len(texts), completions=texts, **columns)
