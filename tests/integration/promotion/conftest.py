"""Two runs of the tiny project, finished."""

import pytest

from mortal_steps.runs.run import find_run
from tests.support.promotion import train_two


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """The project's folder."""
    return train_two(tmp_path_factory.mktemp("project"))


@pytest.fixture
def runs(trained):
    return {name: find_run(trained / "runs", name) for name in ("first", "second")}
