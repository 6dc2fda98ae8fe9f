"""mortal_steps.system.imports: imports without work that is of no use."""

import gc

import pytest

from mortal_steps.system.imports import imports_without_gc


def test_no_garbage_is_looked_for_while_something_is_imported_or_cannot_be():
    with pytest.raises(ImportError), imports_without_gc():
        assert not gc.isenabled()
        raise ImportError
    assert gc.isenabled()
