"""What workers of a run wait for before they can start, for `mortal status`.

cluster/rollout-0/waits.json    {"text": "no node has a free H100", "at": 1764108000.1}
"""

import json
import time

from mortal_steps.store import RunStore
from mortal_steps.store.files import write_json

WAITS_FILE = "waits.json"
LEFT_AFTER_S = 60.0
"""A file that is older was left by a process that was killed."""


def note_wait(store: RunStore, worker: str, text: str | None) -> None:
    """Note what a worker waits for; None: it waits no more. Raises `StoreError`."""
    path = store.path(f"cluster/{worker}/{WAITS_FILE}")
    if text is None:
        path.unlink(missing_ok=True)
    else:
        write_json(path, {"text": text, "at": time.time()})


def waits(store: RunStore) -> list[str]:
    """Return what workers wait for now, a line each."""
    lines = []
    for path in sorted(store.path("cluster").glob(f"*/{WAITS_FILE}")):
        try:
            noted = json.loads(path.read_bytes())
            if time.time() - noted["at"] < LEFT_AFTER_S:
                lines.append(f"{path.parent.name}: {noted['text']}")
        except (FileNotFoundError, ValueError, KeyError):  # it has ended meanwhile
            continue
    return lines
