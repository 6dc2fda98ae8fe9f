"""What commands print for programs."""

import json
from dataclasses import dataclass, field
from math import inf, nan

from mortal.terminal.output import print_json


@dataclass
class Trend:
    first: float = nan
    last: dict = field(default_factory=lambda: {"loss": [inf, -inf, 0.1]})


def no_number(name):
    raise AssertionError(f"{name} is no JSON")


def test_a_number_that_is_none_is_null(capsys):
    print_json({"trend": Trend(), "runs": [nan, 2, True, "NaN"]})
    found = json.loads(capsys.readouterr().out, parse_constant=no_number)
    assert found == {
        "trend": {"first": None, "last": {"loss": [None, None, 0.1]}},
        "runs": [None, 2, True, "NaN"],
    }
