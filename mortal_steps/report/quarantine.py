"""Problems that were left out of training because a reward function or an environment failed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mortal_steps.report.units import counted


@dataclass(frozen=True, kw_only=True, slots=True)
class Quarantined:
    """A problem on which a reward function or environment failed."""

    problem_id: str
    function: str
    kind: str
    """Such as exception, timeout, crash or environment (`RewardFailure.kind`)."""
    times: int
    """Steps and evaluations in which it happened."""
    last_step: int
    """Train steps done after the last of them."""
    message: str
    """Of the last of them."""


def find_quarantined(rows: Iterable[Mapping[str, Any]]) -> list[Quarantined]:
    """Return one entry per problem, function and kind of failure, from the rows of
    quarantine.jsonl."""
    found: dict[tuple[str, ...], Quarantined] = {}
    for row in rows:
        key = (row["problem_id"], row["function"], row["kind"])
        known = found.get(key)
        found[key] = Quarantined(
            problem_id=row["problem_id"],
            function=row["function"],
            kind=row["kind"],
            times=1 + (known.times if known else 0),
            last_step=row["step"],
            message=row["message"],
        )
    return sorted(found.values(), key=lambda one: -one.times)


def quarantine_in_words(quarantined: Sequence[Quarantined]) -> str:
    """Say how many problems failed on whom, and which most often."""
    most = quarantined[0]
    of_environments = {one.kind == "environment" for one in quarantined}
    who = " or ".join(
        name
        for name, has_failed in (("a reward function", False), ("an environment", True))
        if has_failed in of_environments
    )
    problems = counted(len({one.problem_id for one in quarantined}), "problem")
    return (
        f"{problems} that {who} failed on (quarantine.jsonl), most often "
        f"{most.problem_id}: {most.function} {most.message[:200]}"
    )
