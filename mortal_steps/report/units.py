"""Numbers as people read them."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """In one unit, such as `12 min`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def number(value: float | None) -> str:
    """A reward; `-` where nothing was scored."""
    return "-" if value is None else f"{value:.3f}"
