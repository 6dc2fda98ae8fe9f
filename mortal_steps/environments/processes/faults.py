"""What goes wrong in a cell, in words: a request without an answer, an answer that differs.

An environment that answers otherwise when it is asked the same again is no function of its row, its
random streams and its calls. That is counted (`episodes/differing_answers`), named and shown,
wherever it is found. In a rebuilt cell, tokens of the episode follow from the answer before: the
episode has failed. A shard that is made again after a kill follows from the new answer as a whole:
the episode goes on, and the run ends with other bits than one that was never killed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from mortal_steps.environments.messages import AGENT, Opened, Scores, ToolAnswer, ToolCall
from mortal_steps.hosts.base import HostLostError, stack_of
from mortal_steps.hosts.forked import WITH_HOST
from mortal_steps.rewards.calling.failures import OF_POOLS

HANDLER_FILE = str(Path(__file__).parents[1] / "inside/handler.py")
OF_EXECUTORS = (*OF_POOLS, "/concurrent/futures/")
"""Files that code waits in for its own pool of processes or threads."""
WAITED_FOR_POOL = (
    "it waited for a pool; one that is made when its file is imported has no threads in episodes, "
    "which live in forks"
)
LONGEST_SHOWN = 200
"""Characters of an answer or an argument in a message, at most."""
REMEDIES = {
    "timeout": "Make it faster, or raise environment.timeout_s.",
    "pool": "Make the pool when it is first used. If it is made so, look at what goes wrong in its "
    "processes, or raise environment.timeout_s.",
    "ended": "Faults in native code end a process, and SIGKILL may mean that memory ran out.",
    "spoilt": "Code of an environment must leave the descriptors of its process alone.",
    "outage": "See to what it asks, or raise environment.retries; environment.outages names the "
    "exceptions that are no answer.",
    "raised": "Correct it; a failure is never scored 0.",
    "in_turn": "Of requests at the same time, nothing but the clock would say which comes first: "
    "let it await each answer before it asks for something else, such as by one asyncio.Lock "
    "around all of its requests.",
    "shared": "The process that all episodes are forks of must be left alone.",
    "unheard": "Answers come once all episodes of the shard have asked: give its client more time, "
    "or no limit.",
    "unusable": "Let it ask for what the model can be given.",
    "differs": "Let it depend on nothing but its row, its random streams and its calls: no clock, "
    "no order of threads, no state that other episodes change.",
}
OF_PROCESS = (REMEDIES["ended"], REMEDIES["spoilt"])
"""Remedies of faults that end a process; another episode in the process may be their cause."""
Answer = Opened | list[ToolAnswer]


class Fault(Exception):
    """A request without an answer. `episode`: None for the rewards of all of them."""

    def __init__(
        self, episode: int | None, name: str, how: str, remedy: str, stack: str = ""
    ) -> None:
        super().__init__(episode, name, how)
        self.episode, self.remedy, self.stack = episode, remedy, stack
        self.reason = f"{name}: {how}"

    def of(self, episode: int) -> Fault:
        """Return the fault as one of this episode, if it has none."""
        if self.episode is None:
            self.episode = episode
        return self


def named(calls: Sequence[ToolCall] | None) -> str:
    """Return words for a request to an episode; without calls, its `reset`."""
    if calls is None:
        return "reset"
    if calls[0].is_reply or calls[0].name == AGENT:
        return calls[0].name
    names = list(dict.fromkeys(call.name for call in calls))
    return f"{'tool' if len(names) == 1 else 'tools'} {', '.join(names)}"


def check_scores(found: Scores) -> None:
    """Raise a `Fault` if a reward gave no scores."""
    if found.failures:
        how = "; ".join(f"{name} {why}" for name, why in found.failures.items())
        raise Fault(None, "reward", how, REMEDIES["raised"])


def fault_of(episode: int | None, name: str, lost: HostLostError, limit_s: float) -> Fault:
    """Return the fault of a request, with a limit of `limit_s`, whose process was lost, alone or
    with that of all episodes."""
    how = {
        "timeout": f"no answer within {limit_s:g} s",
        "ended": f"its process ended ({lost.how})",
        "spoilt": lost.how,
    }[lost.why]
    why: str = "shared" if lost.how.startswith(WITH_HOST) else lost.why
    stack = stack_of(lost.stack, HANDLER_FILE)
    if lost.why == "timeout" and _waits_for_pool(stack):
        how, why = f"{how}: {WAITED_FOR_POOL}", "pool"
    return Fault(episode, name, how, REMEDIES[why], stack)


def _waits_for_pool(stack: str) -> bool:
    """Return whether the user's code, outermost there, waits for a pool: what awaits async code
    waits for a future, too."""
    *inner, outermost = stack.splitlines() or [""]
    is_users = not any(file in outermost for file in OF_EXECUTORS)
    return is_users and any(file in line for line in inner for file in OF_EXECUTORS)


def answers_of(answer: Answer) -> Sequence[ToolAnswer]:
    if isinstance(answer, Opened):
        return [ToolAnswer(name="reset", content=answer.prompt, seconds=answer.seconds)]
    return answer


def difference_of(
    episode: int | None,
    calls: Sequence[ToolCall] | None,
    before: Sequence[ToolAnswer],
    after: Sequence[ToolAnswer],
) -> Fault | None:
    """Return the first answer of an episode that changed; without calls, the answer of `reset`."""
    seen: Counter[str] = Counter()
    for first, second in zip(before, after, strict=True):
        # In words, since a number that is none is not equal to itself.
        told = [repr((each.name, each.content, each.is_error)) for each in (first, second)]
        if told[0] != told[1]:
            asked = "" if calls is None else f"{_call(calls, first.name, seen[first.name])} "
            was, now = _apart(*(repr(each.content) for each in (first, second)))
            how = f"{asked}gives another answer when it is asked again: {was} before, {now} now"
            return Fault(episode, named(calls), how, REMEDIES["differs"])
        seen[first.name] += 1
    return None


def _call(calls: Sequence[ToolCall], name: str, number: int) -> str:
    """Return a tool's call as code. Answers of async tools follow the others."""
    call = [each for each in calls if each.name == name][number]
    arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
    return f"{call.name}({_cut(arguments)})"


def _apart(*texts: str) -> list[str]:
    """Return the part of each text that holds the difference."""
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    start = sum(1 for _ in same) - LONGEST_SHOWN // 2
    return [_cut(text if start <= 0 else f"...{text[start:]}") for text in texts]


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."
