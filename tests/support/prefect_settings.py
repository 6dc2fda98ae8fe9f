"""What a process says of Prefect in its environment."""

import contextlib
import os


@contextlib.contextmanager
def kept_settings():
    """After the block, the variables of Prefect are as before: a command that is called in this
    process sets some, such as the server that it has begun."""
    before = _settings()
    try:
        yield
    finally:
        for name in _settings().keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)


def _settings():
    return {name: value for name, value in os.environ.items() if name.startswith("PREFECT_")}
