"""Curves of a run: how its reward, or its loss, went."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mortal_steps.runs.manifest import merit_of

CURVE_POINTS = 60
Point = tuple[int, float]
"""Train steps done, and a value."""


def curve_points(rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return `merits`, in 60 points at most."""
    return downsample(merits(rows), CURVE_POINTS)


def merits(rows: Iterable[Mapping[str, Any]]) -> list[Point]:
    """Return the steps of these rows of a log and their rewards, or losses where rows of a dataset
    are learned."""
    return [
        (row["step"], row["loss"] if row.get("reward") is None else row["reward"])
        for row in rows
        if merit_of(row) is not None
    ]


def downsample(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points: each the mean of as many neighbours, at the step of the last."""
    if len(points) <= most:
        return list(points)
    edges = [len(points) * index // most for index in range(most + 1)]
    groups = [points[edges[index] : edges[index + 1]] for index in range(most)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]
