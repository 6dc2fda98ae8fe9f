"""What is known of a GPU by the name that Ray gives its kind."""

from __future__ import annotations

from mortal_steps.compute.devices import Gpu, gpus_elsewhere
from mortal_steps.config.gpus import ALIASES, GIB, MEMORY

KINDS = {
    **MEMORY,
    "A100": 0.0,  # Ray gives those of 80 GB the same name
    "A100-40G": MEMORY["A100-40GB"],
    "A100-80G": MEMORY["A100-80GB"],
}
"""Memory in GiB."""


def gpus_on_a_node(kind: str | None, count: int, worker: str) -> tuple[Gpu, ...]:
    """Return the GPUs of a worker, none for a `kind` of None. Their memory is 0 if the kind is not
    known."""
    if kind is None:
        return ()
    memory = round(GIB * KINDS.get(ALIASES.get(kind, kind), 0.0))
    return gpus_elsewhere(kind, memory, count, worker)
