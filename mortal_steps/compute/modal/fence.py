"""Fencing: a container does nothing more for a flow that has lost its run.

The numbers are fencing tokens, as described in
https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html

    RUN/leases/3    on the Volume, from the run's third lease; says who holds it

Whoever takes the lease (volume_lease.py) puts its number there before anything else. An order
carries the number of the lease that its flow holds, and every call begins by looking at the Volume
anew. So a flow that slept while another machine took over can still ask, but is refused. No number
is ever given to two, so no file is ever written over.
"""

from __future__ import annotations

from mortal_steps.errors import LeaseLostError
from mortal_steps.store import RunStore

FOLDER = "leases"


def check_lease(store: RunStore, number: int) -> None:
    """Raise `LeaseLostError` if the run has had a lease since the one of this number."""
    newest = max((number for number, _ in store.numbered(FOLDER)), default=0)
    if number < newest:
        holder = store.path(f"{FOLDER}/{newest}").read_text().strip()
        raise LeaseLostError(
            f"run {store.root.name} was taken over by {holder}, which holds its lease {newest} on "
            f"Modal; this request has lease {number}. The run continues there"
        )
