"""Reward functions that come with MORTAL, called as TRL calls its own.

The functions need no settings; `functions = ["mortal.rewards.functions:math_equal"]` names one in a
configuration. The classes are kinds of reward with settings: in a configuration, an entry of
`[[rewards.terms]]` with their `type`; in Python, `Overlong(max_length=512, buffer=128).load()` is
the function. docs/rewards.md lists what each needs and returns.
"""

from mortal_steps.rewards.functions import (
    reasoning_gym_score,
    reasoning_gym_solved,
)
from mortal_steps.rewards.kinds.exact import Exact, exact_match
from mortal_steps.rewards.kinds.format import Format, think_answer_format, think_answer_soft
from mortal_steps.rewards.kinds.length import Length
from mortal_steps.rewards.kinds.math import Math, math_equal
from mortal_steps.rewards.kinds.overlong import Overlong
from mortal_steps.rewards.kinds.regex import Regex
from mortal_steps.rewards.kinds.repetition import Repetition, repetition_penalty

__all__ = [
    "Exact",
    "Format",
    "Length",
    "Math",
    "Overlong",
    "Regex",
    "Repetition",
    "exact_match",
    "math_equal",
    "reasoning_gym_score",
    "reasoning_gym_solved",
    "repetition_penalty",
    "think_answer_format",
    "think_answer_soft",
]
