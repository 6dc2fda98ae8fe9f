"""How processes of this package begin."""

import pytest

from tests.support.forked_commands import STARTING, preloaded_holder

__all__ = ["preloaded_holder"]

INTERPRETERS = (
    "compute/",
    "hosts/",
    "modal/",
    "modal_sandboxes/",
    "places/",
    "sandbox/",
    "rewards/test_host_process.py",
    "rewards/test_import_order.py",
)
"""Tests of how interpreters start, and of what they see."""


@pytest.fixture(scope="module", autouse=True)
def processes_are_forked(request):
    """Elsewhere workers, and hosts of users' code, are forked off a process that has imported what
    they need."""
    name = request.path.relative_to(request.config.rootpath / "tests/integration").as_posix()
    if name.startswith(INTERPRETERS):
        yield
        return
    holder = request.getfixturevalue("preloaded_holder")
    with pytest.MonkeyPatch.context() as patch:
        for place in STARTING:
            patch.setattr(place, "Child", holder.child)
        yield
