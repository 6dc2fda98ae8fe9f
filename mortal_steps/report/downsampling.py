"""A curve with few points, for few characters."""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[int, float]
"""Train steps done, and a value."""


def downsample(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points: each the mean of as many neighbours, at the step of the last."""
    if len(points) <= most:
        return list(points)
    edges = [len(points) * place // most for place in range(most + 1)]
    groups = [points[edges[place] : edges[place + 1]] for place in range(most)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]
