"""Results that older code left in Prefect's cache are not taken for ones of this code."""

import pickle
from dataclasses import dataclass, field

import pytest

from mortal_tasks.durability import shape_of


def older():
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Ref:
        step: int

    return Ref


def newer():
    @dataclass(frozen=True, kw_only=True, slots=True)
    class Ref:
        step: int
        sources: tuple[str, ...] = field(default=())

    return Ref


def test_a_pickle_leaves_a_field_unset_that_it_is_older_than_so_its_key_is_another(monkeypatch):
    kind = older()
    monkeypatch.setitem(globals(), "Ref", kind)
    kind.__qualname__ = "Ref"
    cached = pickle.dumps(kind(step=3))
    monkeypatch.setitem(globals(), "Ref", newer())
    taken = pickle.loads(cached)
    with pytest.raises(AttributeError, match="sources"):
        _ = taken.sources
    assert shape_of(older()) == shape_of(older()) != shape_of(newer())
