"""What goes wrong in a cell, in words: a request without an answer, an answer that differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mortal_steps.environments.messages import REPLY, Opened, Scores, ToolAnswer, ToolCall
from mortal_steps.hosts.base import HostLostError, stack_of

HANDLER_FILE = str(Path(__file__).with_name("handler.py"))
LONGEST_SHOWN = 200
"""Characters of an answer or an argument in a message."""
REMEDIES = {
    "timeout": "Make it faster, or raise environment.timeout_s.",
    "ended": "Faults in native code end a process, and SIGKILL may mean that memory ran out.",
    "spoilt": "Code of an environment must leave the descriptors of its process alone.",
    "outage": "See to what it asks, or raise environment.retries; environment.outages names the "
    "exceptions that are no answer.",
    "raised": "Correct it; a failure is never scored 0.",
    "differs": "Let it depend on nothing but its row, its random streams and its calls: no clock, "
    "no order of threads, no state that other episodes change.",
}
Answer = Opened | list[ToolAnswer]


class Fault(Exception):
    """A request without an answer. `episode`: None for the rewards of all of them."""

    def __init__(
        self, episode: int | None, name: str, how: str, remedy: str, stack: str = ""
    ) -> None:
        super().__init__(episode, name, how)
        self.episode, self.remedy, self.stack = episode, remedy, stack
        self.reason = f"{name}: {how}"


def named(calls: Sequence[ToolCall] | None) -> str:
    """Return in words what is asked of an episode: without calls, its `reset`."""
    if calls is None:
        return "reset"
    if calls[0].is_reply:
        return REPLY
    names = list(dict.fromkeys(call.name for call in calls))
    return f"{'tool' if len(names) == 1 else 'tools'} {', '.join(names)}"


def check_scores(found: Scores) -> None:
    """Raise a `Fault` if a reward gave no scores."""
    if found.failures:
        how = "; ".join(f"{name} {why}" for name, why in found.failures.items())
        raise Fault(None, "reward", how, REMEDIES["raised"])


def fault_of(episode: int | None, name: str, lost: HostLostError, limit_s: float) -> Fault:
    """Return the fault of a request, with a limit of `limit_s`, whose process was lost."""
    how = {
        "timeout": f"no answer within {limit_s:g} s",
        "ended": f"its process ended ({lost.how})",
        "spoilt": lost.how,
    }[lost.why]
    return Fault(episode, name, how, REMEDIES[lost.why], stack_of(lost.stack, HANDLER_FILE))


def difference_of(calls: Sequence[ToolCall] | None, before: Answer, after: Answer) -> str:
    """Return in words what an episode answered differently when it was asked again; '' if it did
    not."""
    if isinstance(before, Opened) or isinstance(after, Opened):
        assert isinstance(before, Opened) and isinstance(after, Opened)
        return _differ("", before.prompt, after.prompt) if before.prompt != after.prompt else ""
    assert calls is not None
    seen: Counter[str] = Counter()
    for first, second in zip(before, after, strict=True):
        told = [(each.name, each.content, each.is_error) for each in (first, second)]
        if told[0] != told[1]:  # answers of async tools come behind the others
            call = [each for each in calls if each.name == first.name][seen[first.name]]
            arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
            return _differ(f"{call.name}({_cut(arguments)}) ", first.content, second.content)
        seen[first.name] += 1
    return ""


def _differ(call: str, first: Any, second: Any) -> str:
    return (
        f"{call}gives another answer when it is asked again in a new process: {_cut(repr(first))} "
        f"before, {_cut(repr(second))} now"
    )


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
