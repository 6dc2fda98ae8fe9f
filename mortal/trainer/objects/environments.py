"""Turns environments that come with MORTAL into the kinds of reward that correspond to them.

Those kinds know more than a plain environment: how long a call may take, what it costs, and which
questions were asked before.
"""

from __future__ import annotations

import os
from typing import Any

from mortal_steps.rewards.code_execution.environment import CodeExecutionEnvironment
from mortal_steps.rewards.judge.environment import OPENAI, OPENAI_KEY, LLMJudgeEnvironment


def kind_of(reward: Any) -> dict[str, Any] | None:
    """The entry of `[[rewards.terms]]` for an environment that comes with MORTAL.

    None for any other reward, and for an environment of a derived class or one whose attributes
    were changed after it was constructed.
    """
    if type(reward) is CodeExecutionEnvironment and _is_as_made(reward):
        return {"type": "sandbox", **_said(reward.given)}
    if type(reward) is LLMJudgeEnvironment and _is_as_made(reward):
        return {"type": "judge", **_said(reward.given), **_address(reward)}
    return None


def _said(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _is_as_made(reward: Any) -> bool:
    made = type(reward)(**_said(reward.given))
    return _public(reward) == _public(made)


def _public(reward: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(reward).items() if not name.startswith("_")}


def _address(judge: LLMJudgeEnvironment) -> dict[str, Any]:
    """The address of a judge that took it from the environment variables, and the variable with its
    key. Empty if the address was given or is OpenAI's."""
    if judge.given["base_url"] is not None or judge.base_url == OPENAI:
        return {}
    found = {"base_url": judge.base_url}
    if judge.given["api_key_env"] is None and OPENAI_KEY in os.environ:
        found["api_key_env"] = OPENAI_KEY
    return found
