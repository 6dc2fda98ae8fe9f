"""End-to-end runs."""

import pytest

from tests.support.end_to_end import mortal, prefect, project, server
from tests.support.forking.holder import LIGHT, HolderOfPytest
from tests.support.forking.patches import fork_by

__all__ = ["mortal", "prefect", "project", "server"]


@pytest.fixture(scope="package", autouse=True)
def processes_are_forked():
    """What a test starts in pytest's own process, such as the run that others must equal; what
    commands and deployments start is theirs."""
    with pytest.MonkeyPatch.context() as patch:
        fork_by(HolderOfPytest(), LIGHT, patch.setattr)
        yield
