"""A batch to score: two shards of three problems with four completions each, without a model.

The completion that faults strike has the highest score of its group, so that a false zero shows.
"""

from __future__ import annotations

from mortal_steps.types import (
    Completion,
    GeneratedGroup,
    GeneratedShard,
    PolicyVersion,
    Problem,
)

NUM_SHARDS, GROUPS, COMPLETIONS = 2, 3, 4
STRUCK = (0, 1)
"""Shard and group of the problem that faults strike."""
SHORTEST = 12
"""Characters of a completion with the score 0, where the score is the length beyond that."""
TESTS = "assert f() > 0\nassert f() > 1\nassert f() > 2"

PROGRAM = "def f():\n    return {score}\n"
FOUND = 'import ctypes, time\nctypes.CDLL(None).prctl(15, b"{mark}", 0, 0, 0)\ntime.sleep(0.4)\n'
"""Before a program: gives its process a name to find it by, and time to be found."""


def problem_id(shard: int, group: int) -> str:
    """Of a group."""
    return f"train-{shard * GROUPS + group}"


def struck_problems(strikes: str) -> set[str]:
    """Those that a fault may take the scores from."""
    shard, group = STRUCK
    groups = range(GROUPS) if strikes == "shard" else [group]
    return {problem_id(shard, each) for each in groups}


def make_shards(*, programs: bool, mark: str, fault: str = "") -> list[GeneratedShard]:
    """Return the batch; `fault` is the value of that column for the struck problem."""
    return [
        GeneratedShard(
            step=0,
            shard=shard,
            policy_version=PolicyVersion(0),
            groups=[_group(shard, group, programs, mark, fault) for group in range(GROUPS)],
        )
        for shard in range(NUM_SHARDS)
    ]


def _group(shard: int, group: int, programs: bool, mark: str, fault: str) -> GeneratedGroup:
    struck = (shard, group) == STRUCK
    completions = []
    for number in range(COMPLETIONS):
        score = (shard + group + number) % COMPLETIONS
        shown = mark if struck and score == COMPLETIONS - 1 else ""
        if programs:
            text = (FOUND.format(mark=shown) if shown else "") + PROGRAM.format(score=score)
        else:
            text = f"{shard}{group}{shown}".ljust(SHORTEST + score, ".")
        completions.append(_completion(text, number))
    return GeneratedGroup(
        problem=Problem(
            id=problem_id(shard, group),
            prompt=f"{shard}{group}=",
            columns={"tests": TESTS, "fault": fault if struck else ""},
        ),
        prompt_ids=[3, 4, 5],
        completions=completions,
    )


def _completion(text: str, number: int) -> Completion:
    return Completion(
        token_ids=[6 + number, 7, 1],
        logprobs=[-4.0, -4.1, -4.2],
        text=text,
        finish_reason="stop",
        seed=0,
        policy_version=PolicyVersion(0),
    )
