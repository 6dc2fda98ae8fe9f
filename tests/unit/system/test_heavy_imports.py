"""mortal_steps.system.heavy_imports: imports without work that is of no use."""

import gc
import importlib.metadata

import pytest

from mortal_steps.system.heavy_imports import heavy_imports, training_imports


def test_no_garbage_is_looked_for_while_something_is_imported_or_cannot_be():
    with pytest.raises(ImportError), heavy_imports():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()


def test_installed_packages_are_looked_through_once():
    look = importlib.metadata.packages_distributions
    with training_imports():
        first = importlib.metadata.packages_distributions()
        assert importlib.metadata.packages_distributions() is first
    assert importlib.metadata.packages_distributions is look
    assert "pytest" in first
