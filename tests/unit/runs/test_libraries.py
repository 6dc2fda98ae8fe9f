"""A run that is continued with other versions of the libraries that compute its numbers."""

import dataclasses

import pytest

from mortal_steps.orchestration.driver import _log_changed_libraries
from mortal_steps.runs.run import Run, find_run
from mortal_steps.system.libraries import changed_libraries, library_versions
from tests.support.begun_runs import make_run


@pytest.fixture
def begun(tmp_path):
    make_run(tmp_path, "begun")
    return find_run(tmp_path, "begun")


def test_a_run_notes_the_versions_that_it_begins_with(begun, caplog):
    assert begun.info.libraries == library_versions()
    assert {"torch", "transformers", "trl"} <= begun.info.libraries.keys()
    _log_changed_libraries(begun)
    assert not caplog.records


@pytest.mark.parametrize(
    ("then", "told"),
    [
        ({"torch": "2.0.1"}, "torch was 2.0.1, now "),
        ({"gone": "1.0"}, "gone was 1.0, now not installed"),
    ],
)
def test_what_was_upgraded_meanwhile_is_told(begun, caplog, then, told):
    info = dataclasses.replace(begun.info, libraries={**begun.info.libraries, **then})
    _log_changed_libraries(Run(begun.store, None, info))
    assert told in caplog.text and "continue it in an environment" in caplog.text


def test_a_run_that_noted_none_says_nothing(begun, caplog):
    """It was begun by an earlier version."""
    _log_changed_libraries(Run(begun.store, None, dataclasses.replace(begun.info, libraries=None)))
    assert not caplog.records
    assert changed_libraries({**library_versions(), "x": "1"}) == ["x was 1, now not installed"]
