"""A Prefect server for the tests of a module or a session."""

import contextlib

import pytest

from mortal.server.choice import prefect_server
from mortal.server.files import DATABASE, server_home
from tests.support.prefect_database import put_database


@contextlib.contextmanager
def server_of_its_own(folder):
    """Started as `mortal` starts its own, with its files in `folder`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MORTAL_STATE_DIR", str(folder))
        put_database(server_home() / DATABASE)
        patch.delenv("PREFECT_API_URL", raising=False)
        with prefect_server(port=0, keep=False, say=print) as running:
            yield running
