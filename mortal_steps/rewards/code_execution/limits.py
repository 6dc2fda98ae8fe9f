"""How long all test cases of a completion may take together."""

from __future__ import annotations

from mortal_steps.sandbox.base import Limits

TIMES_ONE_CASE = 10
"""If nothing is said: so often the time of one."""


def total_limits(timeout: float, total_timeout: float | None) -> Limits:
    """CPU time and time of all test cases, where one has `timeout` CPU seconds.

    Raises `ValueError` for a time that is none.
    """
    return Limits(cpu_s=TIMES_ONE_CASE * timeout if total_timeout is None else total_timeout)
