"""Turns environments that come with MORTAL into the kinds of reward that correspond to them.

Those kinds know more than a plain environment: how long a call may take, what it costs, and which
questions were asked before.
"""

from __future__ import annotations

from typing import Any

from mortal_steps.rewards.code_execution.environment import CodeExecutionEnvironment
from mortal_steps.rewards.judge.environment import LLMJudgeEnvironment


def kind_of(reward: Any) -> dict[str, Any] | None:
    """The entry of `[[rewards.terms]]` for an environment that comes with MORTAL.

    None for any other reward, and for an environment of a derived class or one whose attributes
    were changed after it was constructed.
    """
    if type(reward) not in (CodeExecutionEnvironment, LLMJudgeEnvironment):
        return None
    settings = reward.term.model_dump(exclude_defaults=True)
    if _public(reward) != _public(type(reward)(**settings)):
        return None
    return {"type": reward.term.type, **settings}


def _public(reward: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(reward).items() if not name.startswith("_")}
