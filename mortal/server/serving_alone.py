"""One `mortal schedule` serves a name: two would each take some of its runs, in their own folders,
with the configuration of the one that came last."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from mortal.server.files import server_home
from mortal_steps.errors import ConfigError
from mortal_steps.store.files import writing


@contextlib.contextmanager
def serving_alone(name: str, api_url: str) -> Iterator[None]:
    """Hold `name` at the server for the time of the block. The kernel frees it when this process is
    gone.

    Raises `ConfigError` if another process of this user serves it from here.
    """
    of_server = hashlib.sha256(f"{api_url} {name}".encode()).hexdigest()[:16]
    path = server_home() / f"serves-{of_server}.lock"
    with writing(path):
        held = path.open("a+", encoding="utf-8")
    with held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            held.seek(0)
            raise ConfigError(
                f"`mortal schedule` serves {name} already ({held.read() or 'another process'}); "
                "end that one, or serve under another --name"
            ) from None
        with writing(path):
            held.truncate(0)
            held.write(f"process {os.getpid()} in {Path.cwd()}")
            held.flush()
        yield
