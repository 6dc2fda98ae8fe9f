"""When whom to kill: a pure function of a seed.

Every victim is killed in every stage that it can live in, inside the stage and at its end, before
anything is repeated. A shot waits for a stage to begin (and then a fraction of what the stage takes
as a rule), or to end. A volley is shots that follow each other: each comes while the run still
recovers from the one before.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

Moment = Literal["inside", "after"]

ROLLOUT_WORKERS = ("rollout-0", "rollout-1")
WORKERS = ("actor-0", *ROLLOUT_WORKERS, "reward-0")
VICTIMS = (*WORKERS, "host", "flow", "server")
"""The actor, the rollout workers, the reward worker and its host, the flow, the Prefect server."""

GAME = "game"
"""The server of environments, where there is one."""

TEACHER = "teacher"
"""The process of a teacher, where training asks one."""

KILLED, STOPPED = ("process", "node process", "bridge", "machine"), ("bridge", "machine", "raylet")
ON_A_CLUSTER = (*KILLED, *(f"stopped {what}" for what in STOPPED))
"""What can be killed, or stopped for a while, of a worker on a Ray cluster."""

STAGES = ("generate", "reward", "train_step", "sync_weights", "evaluate", "checkpoint")
"""Those that come again and again."""
STARTING = "starting"
"""What a process is in until it has answered its first call, which is where it recovers."""
LAST = "save_final"
TOGETHER = (("actor-0", "rollout-0"), ROLLOUT_WORKERS, ("actor-0", "reward-0"), ("flow", "server"))
"""Killed at once."""
IN_A_ROW = (
    *(("actor-0", victim) for victim in VICTIMS),
    *(("flow", "flow"), ("flow", "server"), ("server", "flow"), ("server", "actor-0")),
    *(("rollout-0", "rollout-0"), ("rollout-1", "rollout-0"), ("rollout-1", "actor-0")),
    *(("reward-0", "reward-0"), ("reward-0", "rollout-1"), ("host", "host"), ("host", "reward-0")),
)
"""The first is killed, and the second while the first starts again."""
TRIES = 4
"""Of a task: so many kills in a row end the flow."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Shot:
    """SIGKILL to one process or several at a moment of a stage."""

    victims: tuple[str, ...]
    stage: str
    moment: Moment
    fraction: float = 0.0
    """Of the stage's usual duration, after its beginning; inside a stage alone."""
    starter: str = ""
    """Whose start is meant, with the stage `STARTING`."""


Volley = tuple[Shot, ...]


def volleys(
    seed: int,
    num_kills: int,
    *,
    victims: Sequence[str] = VICTIMS,
    stages: Sequence[str] = STAGES,
) -> list[Volley]:
    """At least `num_kills` kills in the order of a shuffled deck; decks follow each other."""
    rng = random.Random(seed)
    chosen: list[Volley] = []
    while kills_of(chosen) < num_kills:
        deck = list(_deck(rng, victims, stages))
        rng.shuffle(deck)
        for volley in deck:
            if kills_of(chosen) >= num_kills:
                break
            chosen.append(volley)
    return chosen


def at_ranks(chosen: Iterable[Volley]) -> list[Volley]:
    """The same for an actor of two ranks: every second kill of the actor is one of the other
    rank."""
    names = itertools.cycle(("rank-1", "actor-0"))

    def other(shot: Shot) -> Shot:
        victims = (next(names) if each == "actor-0" else each for each in shot.victims)
        return replace(shot, victims=tuple(victims))

    return [tuple(map(other, volley)) for volley in chosen]


def at_teachers(chosen: Iterable[Volley]) -> list[Volley]:
    """The same for training that asks a teacher: a host is killed in evaluations alone, and the
    teacher in its place everywhere else."""

    def other(shot: Shot) -> Shot:
        if shot.stage == "evaluate":
            return shot
        victims = (TEACHER if each == "host" else each for each in shot.victims)
        return replace(shot, victims=tuple(victims))

    return [tuple(map(other, volley)) for volley in chosen]


def kills_of(chosen: Sequence[Volley]) -> int:
    """How many processes are killed."""
    return sum(len(shot.victims) for volley in chosen for shot in volley)


def is_last(volley: Volley) -> bool:
    """Whether it belongs to the end of a run."""
    return volley[0].stage == LAST


def _deck(rng: random.Random, among: Collection[str], recurring: Sequence[str]) -> Iterator[Volley]:
    """Each victim in each stage; double failures."""

    def shot(stage: str, moment: Moment, *victims: str) -> Shot:
        fraction = rng.uniform(0.0, 0.9) if moment == "inside" else 0.0
        return Shot(victims=victims, stage=stage, moment=moment, fraction=fraction)

    def start(starter: str, victim: str) -> Shot:
        fraction = rng.uniform(0.0, 0.9)
        return Shot(
            victims=(victim,), stage=STARTING, moment="inside", fraction=fraction, starter=starter
        )

    moments: tuple[Moment, ...] = ("inside", "after")
    for moment in moments:
        for victim in (each for each in VICTIMS if each in among):
            for stage in (*recurring, LAST):
                yield (shot(stage, moment, victim),)
        starting = ("actor-0", *ROLLOUT_WORKERS, "flow", "server")
        for victim in (each for each in starting if each in among):
            flow = shot(rng.choice(recurring), "inside", "flow")
            yield flow, shot("start_workers", moment, victim)
    for gone, victim in (both for both in IN_A_ROW if set(both) <= set(among)):
        yield shot(rng.choice(recurring), "inside", gone), start(gone, victim)
    actor = shot("train_step", "inside", "actor-0")
    yield actor, *(start("actor-0", "actor-0") for _ in range(TRIES - 1))
    for victims in (each for each in TOGETHER if set(each) <= set(among)):
        yield (shot(rng.choice(recurring), "inside", *victims),)
