"""The short form of a reward: one string, as in `rewards.functions`.

rewards.py:correct, package.module:correct    a function, or an environment: there is a `:`
sandbox                                       the kind of that name
./models/judge, org/judge, org/judge@v1.0     a reward model: there is a `/`, and no `:`
"""

from __future__ import annotations

import re
from typing import Any

SANDBOX = "sandbox"
HUB_MODEL = re.compile(r"(?P<model>[\w-][\w.-]*/[\w-][\w.-]*)@(?P<revision>[\w./-]+)")
"""A model of the hub at a branch, tag or commit."""

FORMS = (
    "`package.module:function`, `path/file.py:function`, `sandbox` for programs and their test "
    "cases, or a reward model: its folder as `./folder` or its id on the hub as `org/model`"
)


def in_full(spec: str) -> dict[str, Any]:
    """The settings of the term that `spec` stands for; raises `ValueError` if it stands for
    none."""
    if spec.count(":") > 1 and "," in spec:
        raise ValueError(f"{spec!r} holds several rewards; write them one by one")
    if ":" in spec:
        return {"type": "function", "function": spec}
    if spec == SANDBOX:
        return {"type": SANDBOX}
    if "/" in spec and not spec.endswith(".py"):
        named = HUB_MODEL.fullmatch(spec)
        return {"type": "model", **(named.groupdict() if named else {"model": spec})}
    raise ValueError(f"{spec!r} is no reward; write {FORMS}")


def checked(functions: tuple[str, ...]) -> tuple[str, ...]:
    """The specs, unchanged; raises `ValueError` if one of them is no reward."""
    for spec in functions:
        in_full(spec)
    return functions
