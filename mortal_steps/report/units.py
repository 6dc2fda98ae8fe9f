"""Formats numbers for people."""

import math
from datetime import datetime


def duration(seconds: float) -> str:
    """Format a time in one unit, such as `12 min`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def clock(seconds: float) -> str:
    """Format a time as a clock counts it, such as `2:54` or `1:02:54`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def number(value: float | None) -> str:
    """Format a reward; `-` where nothing was scored."""
    return "-" if value is None else f"{value:.3f}"


def money(dollars: float) -> str:
    """Format dollars: whole cents or, of less than ten, two digits."""
    digits = 1 - math.floor(math.log10(dollars)) if 0 < dollars < 0.095 else 2
    return f"{dollars:.{digits}f}"


def drawn(temperature: float) -> str:
    """Say how completions of this temperature are chosen, in a word."""
    return "sampled" if temperature else "greedy"


def counted(count: int, noun: str) -> str:
    """Format a count, such as `1 step` or `2,000 steps`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def byte_size(num_bytes: float) -> str:
    """Format a size on the disk, such as `1.5 GB`: powers of 1000, as `df -H` has them."""
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if num_bytes >= length:
            return f"{num_bytes / length:.1f} {unit}"
    return f"{num_bytes / 1e3:.0f} kB"


def moment(seconds: float) -> str:
    """Format a local time with its offset, such as 2026-01-31T23:59:59+01:00."""
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
