"""The record of a recipe: what counts as one beginning of it, in which what is made anew each time
is made once."""

from dataclasses import replace

import pytest

from mortal_steps.errors import LeaseLostError
from mortal_steps.runs.lease import RECORD_FILE, LeaseRecord, read_lease
from tests.support.made_recipe import made_recipe

PAGE, OTHER = "http://server/runs/flow-run/1", "http://server/runs/flow-run/2"


@pytest.fixture
def folder(tmp_path):
    return made_recipe(tmp_path)


@pytest.fixture
def begin(folder):
    """Begin the recipe in the flow run of a page; return what the beginning is called."""
    config = folder.read().recipe()

    def begin(page, flow_run, **how):
        return folder.begin(config, (), page, beginning=flow_run, **how).begun

    return begin


def end(folder, status):
    folder.write(replace(folder.read(), status=status))


def test_it_is_new_for_each_flow_run_unless_that_is_to_go_on(folder, begin):
    assert begin(PAGE, "one") == "one"
    end(folder, "failed")
    assert begin(OTHER, "two", goes_on=True) == "one"
    end(folder, "failed")
    assert begin(PAGE, "three") == "three"
    end(folder, "completed")
    assert begin(OTHER, "four", goes_on=True) == "four"


def test_a_flow_run_that_was_killed_as_it_ended_comes_again(folder, begin):
    """All was recorded, and its server did not know yet."""
    for page in (PAGE, None):
        begin(page, "one")
        end(folder, "completed")
        assert begin(page, "one") == "one"


def test_a_flow_run_that_was_killed_before_it_was_recorded_goes_on_with_none_before(folder, begin):
    begin(OTHER, "yesterday")
    end(folder, "failed")
    assert begin(PAGE, "today") == "today", "although its server starts it for the second time"


def test_one_that_an_earlier_version_has_begun_goes_on(folder, begin):
    """Their beginnings are called by random names."""
    begin(PAGE, "random")
    assert begin(PAGE, "one") == "random"


def test_a_process_that_has_lost_the_recipe_writes_nothing_more(folder):
    """Its machine slept for long, and another one goes on with the recipe."""
    lease, before = folder.acquire(), folder.read()
    folder.write(before)
    ours = read_lease(folder.store)
    elsewhere = replace(ours, host="another", boot="", token="theirs")
    folder.store.write_record(RECORD_FILE, elsewhere, LeaseRecord)
    with pytest.raises(LeaseLostError, match=r"was taken over by process .* on another"):
        folder.write(replace(before, status="failed"))
    assert folder.read().status == before.status
    lease.release()
    assert read_lease(folder.store) == elsewhere
