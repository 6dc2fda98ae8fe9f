"""Tools, and an agent, that ask a judge and run programs."""

import os

from mortal.rewards import RewardEnvironment
from mortal.rewards.examples import LLMJudgeEnvironment
from mortal_steps.sandbox import levels

if "NO_BUBBLEWRAP" in os.environ:  # as on a machine without it
    levels.find_bubblewrap = lambda: None

PROGRAMS = RewardEnvironment()
JUDGE = LLMJudgeEnvironment("m", base_url=os.environ.get("JUDGE_URL", "http://127.0.0.1:9/v1"))


def agent(base_url: str, code: str, text: str) -> dict:
    """Run a program and have a text rated, instead of asking the model."""
    printed = PROGRAMS.execute_in_sandbox(code).stdout
    return {"reward": JUDGE.score(text, "Write."), "printed": float(printed)}


def run(code: str) -> str:
    """Run a program.

    Args:
        code: In Python.
    """
    return PROGRAMS.execute_in_sandbox(code).stdout


def rate(text: str) -> float:
    """Have a text rated.

    Args:
        text: Any.
    """
    return JUDGE.score(text, "Write.")
