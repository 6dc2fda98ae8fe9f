"""A Prefect server for the tests of a module or a session."""

import contextlib

import pytest

from mortal.server.files import server_home
from mortal.server.select_server import prefect_server
from tests.support.database import new_database
from tests.support.prefect_settings import kept_settings


@contextlib.contextmanager
def server_of_its_own(folder):
    """Started as `mortal` starts its own, with its files in `folder`."""
    with kept_settings(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORTAL_STATE_DIR", str(folder))
        patch.delenv("PREFECT_API_URL", raising=False)
        for name, value in new_database(server_home()).items():
            patch.setenv(name, value)
        with prefect_server(print) as running:
            yield running
