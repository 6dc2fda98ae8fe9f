"""The starts of workers on other machines, each with a number.

    cluster/actor-0/3    the third start of this worker

A worker that finds a later number than its own was given up, and ends itself.
"""

from mortal_steps.store import RunStore
from mortal_steps.store.files import writing


def give_number(store: RunStore, numbers: str, nonce: str) -> int:
    """Give a start of a worker the next number; nodes with earlier ones begin nothing more."""
    number = max((n for n, _ in store.numbered(numbers)), default=0) + 1
    file = store.path(f"{numbers}/{number}")
    with writing(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as started:  # no number is given to two
            started.write(nonce)
    return number


def give_up_workers(store: RunStore) -> None:
    """Let workers that a run still has on other machines begin nothing more, wherever it goes on.
    Raises `StoreError`."""
    for folder in store.path("cluster").glob("*/"):
        give_number(store, f"cluster/{folder.name}", nonce="")
