"""A run directory here, and one on a Volume that is a folder."""

import pytest

from mortal_steps.store import RunStore
from mortal_steps.types import Problem
from tests.support.modal.travel import PROBLEMS, Volume


@pytest.fixture
def volume(tmp_path):
    return Volume(tmp_path / "volume")


@pytest.fixture
def there(volume):
    """The run on the Volume."""
    return RunStore(volume.root / "run")


@pytest.fixture
def here(tmp_path):
    """The flow's run directory, with a batch in it."""
    return RunStore(tmp_path / "here/run")


@pytest.fixture
def batch(here):
    return here.write_record("steps/000000/batch.json", PROBLEMS, list[Problem])
