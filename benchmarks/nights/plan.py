"""Which faults come in which night, and at which step: drawn from a seed before it begins."""

import random
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.nights.project import Kind

HEAVY = ("flow", "machine", "disk", "worker")
"""End the flow's process, so that the night comes back only after a pause."""
LIGHT = (
    *("actor", "rollout-0", "reward host", "server"),
    *("stalled line", "reset line", "cut line", "judge"),
)
FAULTS = (*HEAVY, *LIGHT)
FIRST_STEP = 2
LAST_STEPS = 6
"""So many steps before the end no fault begins: the night would be over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Planned:
    """A fault that comes as soon as a run has done so many steps."""

    fault: str
    step: int


@dataclass(frozen=True, kw_only=True, slots=True)
class NightPlan:
    """What a night is to be."""

    number: int
    """From 1."""
    kind: Kind
    steps: int
    faults: Sequence[Planned]


def plan(
    nights: int, faults: int, steps: int, seed: int, without: Collection[str]
) -> list[NightPlan]:
    """`faults` over `nights`, as evenly as can be; in each good night one that ends the flow, in
    the planted ones none, for a notice that waits for a machine says nothing of the notice. It
    comes in the first half, so that the night is back before the next one is due."""
    rng = random.Random(seed)
    heavy, light = _dealt(rng, HEAVY, without), _dealt(rng, LIGHT, without)
    made = []
    for number in range(1, nights + 1):
        kind = kind_of(number, nights)
        count = faults * number // nights - faults * (number - 1) // nights
        chosen = [next(light) for _ in range(count - 1)]
        worst = next(heavy if kind == "good" else light)
        chosen.insert(rng.randrange((count + 1) // 2), worst)
        places = _places(rng, count, steps)
        planned = [Planned(fault=f, step=s) for f, s in zip(chosen, places, strict=True)]
        made.append(NightPlan(number=number, kind=kind, steps=steps, faults=planned))
    return made


def kind_of(number: int, nights: int) -> Kind:
    """Two nights are planted, where there are enough of them; the last one is good."""
    if nights >= 3 and number == nights - 1:
        return "regression"
    if nights >= 2 and number == (nights + 1) // 2:
        return "collapse"
    return "good"


def _dealt(rng: random.Random, kinds: Sequence[str], without: Collection[str]) -> Iterator[str]:
    """Each kind in a random order, then each once more, and so on."""
    left = [kind for kind in kinds if kind not in without]
    while True:
        rng.shuffle(left)
        yield from list(left)


def _places(rng: random.Random, count: int, steps: int) -> list[int]:
    """Return a step for each, from an equal part of the night."""
    room = steps - FIRST_STEP - LAST_STEPS
    return [FIRST_STEP + int((part + rng.random()) * room / count) for part in range(count)]
