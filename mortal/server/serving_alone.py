"""Makes sure that only one `mortal schedule` serves a name.

Two of them would share the runs of that name between them, in different folders, with the
configuration of the one that was started last.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from mortal.server.files import server_home
from mortal_steps.errors import ConfigError
from mortal_steps.store.files import lock_file, writing


@contextlib.contextmanager
def serving_alone(name: str, api_url: str) -> Iterator[None]:
    """Hold a lock on `name` at this server during the block. The kernel releases it when this
    process ends.

    Raises `ConfigError` if another process of this user on this machine serves the name.
    """
    of_server = hashlib.sha256(f"{api_url} {name}".encode()).hexdigest()[:16]
    path = server_home() / f"serves-{of_server}.lock"
    with writing(path):
        held = path.open("a+", encoding="utf-8")
    with held:
        if not lock_file(held, fcntl.LOCK_EX | fcntl.LOCK_NB, path):
            held.seek(0)
            raise ConfigError(
                f"another `mortal schedule` already serves {name} "
                f"({held.read() or 'another process'}); end it, or choose another --name"
            )
        with writing(path):
            held.truncate(0)
            held.write(f"process {os.getpid()} in {Path.cwd()}")
            held.flush()
        yield
