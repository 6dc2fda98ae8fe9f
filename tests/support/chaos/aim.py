"""What a shot waits for, where it has hit, and what shows that its victim is back."""

from __future__ import annotations

from tests.support.chaos.schedule import GAME, ON_A_CLUSTER, STARTING, TEACHER, WORKERS, Shot
from tests.support.chaos.worker_logs import Event, Picture

BOUNDARY_S = 0.02
"""A kill so soon after the end of a stage is one at its end, whatever else has begun."""

ROLE_STAGES = {
    "actor-0": ("start_workers", "draw_order", "train_step", "checkpoint", "save_final"),
    "rank-1": ("start_workers", "train_step", "checkpoint", "save_final"),
    "rollout-0": ("generate", "evaluate"),
    "rollout-1": ("generate", "evaluate"),
    "reward-0": ("reward", "evaluate"),
    "host": ("reward", "evaluate"),
    TEACHER: ("reward",),
    "environments": ("generate", "evaluate"),
    "cell": ("generate", "evaluate"),
    GAME: ("generate", "evaluate"),
}
"""Stages whose end shows that a process does its work again; of others, any stage shows it."""

OWNERS = {
    "rank-1": "actor-0",
    "host": "reward-0",
    TEACHER: "reward-0",
    "environments": "rollout-0",
    "cell": "rollout-0",
    GAME: "rollout-0",
    **{f"{what} of {worker}": worker for what in ON_A_CLUSTER for worker in WORKERS},
}
"""The worker whose log tells what a process below it does, or a server that it asks."""


def is_awaited(event: Event, shot: Shot) -> bool:
    """Whether the event is what the shot waits for: of the victim's own where it has such."""
    if shot.stage == STARTING:
        if shot.starter == "host":
            return event.kind == "host started"
        return (event.kind, event.worker) == ("started", shot.starter)
    victim = shot.victims[0]
    worker = OWNERS.get(victim, victim)
    kind = "begins" if shot.moment == "inside" else "ends"
    own = shot.stage in ROLE_STAGES.get(worker, ()) or (
        shot.stage == "sync_weights" and worker.startswith("rollout")
    )
    if shot.stage == "start_workers":
        own = False
    return (event.kind, event.name) == (kind, shot.stage) and (not own or event.worker == worker)


def usual_name(shot: Shot) -> str:
    """Under which name the usual duration is known of what the shot interrupts."""
    if shot.stage != STARTING:
        return shot.stage
    role = shot.starter.partition("-")[0]
    return {"actor": "start_workers", "rollout": "start"}.get(role, "reward")


def place(picture: Picture, victim: str, shot: Shot, at: float) -> tuple[str, bool]:
    """Return the stage that a kill hit, and whether inside it."""
    newest = picture.newest
    own = picture.stage_of(OWNERS.get(victim, victim))
    if own is not None:
        return own, True
    stages = picture.stages()
    at_an_end = newest is not None and newest.kind == "ends"
    if newest and at_an_end and (not stages or at - newest.at < BOUNDARY_S):
        return newest.name, False
    if not stages:
        return STARTING, True
    return (shot.stage if shot.stage in stages else stages[0]), True


def shows_work(event: Event, victim: str) -> bool:
    """Whether the event is the end of a stage that only the victim's role can have done."""
    worker = OWNERS[victim] if " of " in victim else victim
    if worker in ROLE_STAGES:
        return event.name in ROLE_STAGES[worker]
    return event.name != "start_workers"
