"""A finished recipe, in the folder in which the test works."""

import pytest

from tests.support.made_recipe import made_recipe


@pytest.fixture
def letters(tmp_path, monkeypatch):
    """The folder of the recipe."""
    monkeypatch.chdir(tmp_path)
    return made_recipe(tmp_path)
