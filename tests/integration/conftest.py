"""How processes of this package begin."""

import pytest

from tests.support.forked_commands import HolderOfPytest, fork_by

INTERPRETERS = (
    "compute/",
    "hosts/",
    "modal/",
    "modal_sandboxes/",
    "places/",
    "sandbox/",
    "rewards/test_host_process.py",
    "rewards/test_import_order.py",
    "serving/test_exporting.py",
)
"""Tests of how interpreters start, and of what they see."""


@pytest.fixture(scope="session")
def holder():
    return HolderOfPytest()


@pytest.fixture(scope="module", autouse=True)
def processes_are_forked(request, holder):
    """Elsewhere workers, and hosts of rewards, are forked off a process that has imported what
    they need."""
    name = request.path.relative_to(request.config.rootpath / "tests/integration").as_posix()
    if name.startswith(INTERPRETERS):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        fork_by(holder, patch.setattr)
        yield
