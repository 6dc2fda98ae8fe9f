"""Waits for a run that another process drives."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from mortal_steps.runs.lease import is_driven, read_lease
from mortal_steps.store import RunStore

LOOK_EVERY_S = 1.0
"""Seconds between two looks at the other process's lease."""


async def wait_for_holder(store: RunStore, patience_s: float, say: Callable[[str], None]) -> bool:
    """Wait up to `patience_s` seconds until no process drives the run; returns whether that is so.
    `say` is told which process it waits for."""
    deadline = time.monotonic() + patience_s
    holder = read_lease(store)
    if holder is not None and holder.holds():
        say(
            f"process {holder.pid} on {holder.host} drives run {store.root.name}, and renewed its "
            f"lease {holder.age_s():.0f} s ago; waiting up to {patience_s:.0f} s for it to end"
        )
    while is_driven(store):
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(min(LOOK_EVERY_S, patience_s))
    return True
