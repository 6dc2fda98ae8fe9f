"""The parameters of a user's function and the keys of its stage are compared by name."""

import re
from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.recipes.calling import bound


def export(model: Path, out: Path, *, bits: int = 8, kind="q"):
    """A function of a user's."""


def by_position(model, /, out):
    """One that cannot be called by name."""


def everything(**given):
    """One that takes anything."""


def nowhere(model):
    """One that has no folder to fill."""


def call(function, **parameters):
    return bound(function, parameters, "stages.gguf", "export.py:f")


def test_parameters_are_given_by_name_and_a_path_as_one():
    found = call(export, model="m", bits=4)
    assert found == {"model": Path("m"), "bits": 4}
    assert call(everything, anything=1) == {"anything": 1}


@pytest.mark.parametrize(
    ("function", "parameters", "message"),
    [
        (export, {}, "stages.gguf.model is not set, and export.py:f needs it"),
        (export, {"model": "m", "bit": 4}, "stages.gguf.bit: .*; did you mean bits?"),
        (export, {"model": "m", "x": 4}, "its parameters: bits, kind, model"),
        (nowhere, {"model": "m"}, "has no parameter `out`"),
        (by_position, {"model": "m"}, "stages.gguf.model: export.py:f has no such parameter"),
        (by_position, {}, "stages.gguf.model is not set, .* by position"),
        (3, {}, "is a int, no function"),
    ],
)
def test_what_does_not_fit_is_refused_by_its_key(function, parameters, message):
    with pytest.raises(ConfigError, match=re.compile(message)):
        call(function, **parameters)
