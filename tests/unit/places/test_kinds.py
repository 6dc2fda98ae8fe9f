"""What is known of a place by its name."""

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.places.base import Place, place_of
from mortal_steps.places.table import PLACES
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan


def test_each_place_of_the_table_answers():
    for name in PLACES:
        place = place_of(Plan(parse_config({"compute": {"backend": name}})).place)
        assert isinstance(place, Place)
        assert place.placement(samples=False).engines == ()


def test_a_place_of_ones_own_is_one_that_shares_the_files_of_this_machine(tmp_path, monkeypatch):
    (tmp_path / "rack.py").write_text(
        "from mortal.extend import Place\n\n\nclass Rack(Place):\n    pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    config = parse_config({"compute": {"backend": "rack:Rack"}})
    assert config.compute.place.shares_files and not config.compute.place.here
    assert config.compute.volume is None
    place = place_of(Plan(config).place)
    assert place.placement().engines == ((), ()) and not place.placement().gpus
    assert place.placed() == Plan(config).place
    with pytest.raises(NotImplementedError, match="Rack says nothing of workers"):
        place.compute(None)


@pytest.mark.parametrize(
    ("compute", "message"),
    [
        ({"backend": "modl"}, "did you mean 'modal'"),
        ({"backend": "rack:Rack", "mode": "single_node"}, "'rack:Rack' gives each GPUs of its own"),
    ],
)
def test_a_place_that_is_not_known_or_has_no_such_mode_is_refused(compute, message):
    with pytest.raises(ConfigError, match=message):
        parse_config({"compute": compute})


def test_a_place_that_cannot_be_imported_is_named():
    config = parse_config({"compute": {"backend": "nowhere_at_all:Rack"}})
    with pytest.raises(ConfigError, match=r"compute\.backend = 'nowhere_at_all:Rack'"):
        place_of(Plan(config).place)
