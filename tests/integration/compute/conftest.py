"""Workers of the tests: a container looks for its worker among what is installed."""

import pytest

from tests.support.paths import ROOT


@pytest.fixture(autouse=True)
def tests_are_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
