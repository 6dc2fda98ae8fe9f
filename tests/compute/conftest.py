"""Workers of the tests: a container looks for its worker among what is installed."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def tests_are_importable(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
