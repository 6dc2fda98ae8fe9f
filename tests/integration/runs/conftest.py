"""Where the tests of whole runs in this process train."""

import pytest

from mortal_steps.orchestration.checking import preflight
from tests.support.bare_flow import one_thread, unchecked


@pytest.fixture(scope="module")
def patch():
    """Torch on one thread, no process that checks what a new run needs; undone after the module."""
    with one_thread() as patch:
        patch.setattr(preflight, "check", unchecked)
        yield patch


@pytest.fixture(scope="module")
def project(tmp_path_factory, patch):
    """An empty folder, the working directory."""
    folder = tmp_path_factory.mktemp("project")
    patch.chdir(folder)
    return folder
