"""A run goes on with the model that it began with, wherever the link has moved since."""

from pathlib import Path

import pytest

from mortal_steps.config import ModelConfig
from mortal_steps.errors import ModelError
from mortal_steps.orchestration.open_run import follow_as_before, follow_link
from tests.support.refused import refused


@pytest.fixture
def link(tmp_path, monkeypatch):
    """`models/letters/production`, which points to one version of two."""
    monkeypatch.chdir(tmp_path)
    for name in ("first", "second"):
        (tmp_path / "models/letters/versions" / name).mkdir(parents=True)
    link = Path("models/letters/production")
    link.symlink_to("versions/first")
    return link


def beginning_with(path):
    return ModelConfig(name_or_path=str(path))


def test_a_run_keeps_the_model_that_the_link_pointed_to(link):
    begun = follow_link(beginning_with(link))
    assert begun.name_or_path == "models/letters/versions/first"
    link.unlink()
    link.symlink_to("versions/second")
    assert follow_as_before(beginning_with(link), begun) == begun
    assert follow_link(beginning_with(link)).name_or_path.endswith("second")


def test_however_the_link_is_spelt_and_where_it_is_gone(link):
    roundabout = beginning_with("models/../models/letters/production")
    begun = follow_link(roundabout)
    assert follow_as_before(roundabout, begun) == begun
    link.unlink()
    assert follow_as_before(roundabout, begun) == begun


def test_another_model_is_another_model(link):
    begun = beginning_with("elsewhere/model")
    assert follow_as_before(beginning_with(link), begun) == beginning_with(link)
    folder = beginning_with("models/letters/versions/second")
    assert follow_as_before(folder, beginning_with("models/letters/versions/first")) == folder


def test_a_run_that_was_begun_at_the_link_itself_goes_on(link):
    """As earlier versions began it."""
    begun = beginning_with(link)
    assert follow_as_before(beginning_with(link), begun) == begun


def test_another_link_is_not_followed(link):
    elsewhere = Path("current")
    elsewhere.symlink_to("models/letters/versions/first")
    assert follow_link(beginning_with(elsewhere)) == beginning_with(elsewhere)
    begun = beginning_with("models/letters/versions/first")
    assert follow_as_before(beginning_with(elsewhere), begun) == beginning_with(elsewhere)


def test_the_first_night_is_told_that_nothing_is_in_production(link):
    with refused(ModelError, "words", "models/words/production"):
        follow_link(beginning_with("models/words/production"))
    assert follow_link(beginning_with("somebody/production")) == beginning_with(
        "somebody/production"
    ), "may be a model of the hub"
