"""A curve with few points, for few characters."""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = "▁▂▃▄▅▆▇█"

Point = tuple[int, float]
"""Train steps done, and a value."""


def thinned(points: Sequence[Point], most: int) -> list[Point]:
    """At most `most` points: each the mean of as many neighbours, at the step of the last."""
    if len(points) <= most:
        return list(points)
    edges = [len(points) * place // most for place in range(most + 1)]
    groups = [points[edges[place] : edges[place + 1]] for place in range(most)]
    return [(group[-1][0], sum(value for _, value in group) / len(group)) for group in groups]


def spark(values: Sequence[float]) -> str:
    """A character for each value; the lowest and the highest value have the lowest and highest
    characters."""
    if not values:
        return ""
    lowest, highest = min(values), max(values)
    span = highest - lowest
    if not span:
        return LEVELS[0] * len(values)
    top = len(LEVELS) - 1
    return "".join(LEVELS[round(top * (value - lowest) / span)] for value in values)
