"""What a process says of Prefect in its environment, and of libraries that it imports."""

import contextlib
import os

from tests.support.forking.environment import is_read


@contextlib.contextmanager
def kept_settings():
    """After the block, these variables are as before: a command that is called in this process sets
    some, such as the server that it has begun. Where others are set than at first, tests fork
    nothing: they start interpreters, which take seconds to import what they need."""
    before = os.environ.copy()
    try:
        yield
    finally:
        for name in {name for name, _ in os.environ.copy().items() ^ before.items()}:
            if not (name.startswith("PREFECT_") or is_read(name)):
                continue
            if name in before:
                os.environ[name] = before[name]
            else:
                os.environ.pop(name, None)
