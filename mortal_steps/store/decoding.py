"""Values of known types from what `json.loads` gives: records, and what they are made of.

Importing pydantic, and letting it learn the types of a run, takes longer than all else that a
command does which only looks at a run.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NewType, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from mortal_steps.types.marks import Checked

T = TypeVar("T")
Reader = Callable[[Any], Any]

SHOWN = 60
"""Characters of a wrong value that an error message shows."""


def decode(value: Any, kind: type[T]) -> T:
    """A plain value as a `kind`: a dataclass, a container of some, or a plain value.

    What a dataclass does not know is passed over: newer code may have written it. Raises
    `ValueError`, which says where the value is wrong.
    """
    wanted: Any = kind  # mypy takes no `type[T]` for hashable
    decoded: T = _reader(wanted)(value)
    return decoded


@functools.cache
def _reader(kind: Any) -> Reader:
    """The function that reads values of a type."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _checked(parts[0], [mark.check for mark in parts[1:] if isinstance(mark, Checked)])
    if origin in (Union, UnionType):
        return _one_of([_reader(part) for part in parts])
    if origin is Literal:
        return functools.partial(_choice, parts)
    if origin in (list, Sequence, tuple):
        return functools.partial(_items, tuple if origin is tuple else list, _reader(parts[0]))
    if origin in (dict, Mapping):
        return functools.partial(_entries, _reader(parts[1]))
    if isinstance(kind, NewType):
        return _reader(kind.__supertype__)
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    if hasattr(kind, "model_validate"):  # a configuration, which checks itself
        validate: Reader = kind.model_validate
        return validate
    return PLAIN[kind]


def _any(value: Any) -> Any:
    return value


def _float(value: Any) -> float:
    return float(value) if type(value) in (float, int) else _refuse(value, float)


def _plain(kind: type, value: Any) -> Any:
    return value if type(value) is kind else _refuse(value, kind)


def _refuse(value: Any, kind: type) -> Any:
    raise ValueError(f"{repr(value)[:SHOWN]} is no {kind.__name__}")


PLAIN: Mapping[Any, Reader] = {
    Any: _any,
    float: _float,
    **{kind: functools.partial(_plain, kind) for kind in (str, int, bool, NoneType)},
}


def _choice(choices: tuple[Any, ...], value: Any) -> Any:
    if value not in choices:
        raise ValueError(f"{repr(value)[:SHOWN]} is none of {', '.join(map(repr, choices))}")
    return value


def _checked(kind: Any, checks: Sequence[Reader]) -> Reader:
    read = _reader(kind)

    def reader(value: Any) -> Any:
        return functools.reduce(lambda found, check: check(found), checks, read(value))

    return reader


def _one_of(readers: Sequence[Reader]) -> Reader:
    def reader(value: Any) -> Any:
        wrong = []
        for read in readers:
            try:
                return read(value)
            except ValueError as error:
                wrong.append(str(error))
        raise ValueError(", and ".join(wrong))

    return reader


def _items(make: Callable[[Any], Any], read: Reader, value: Any) -> Any:
    return make([_at(place, read, each) for place, each in enumerate(_plain(list, value))])


def _entries(read: Reader, value: Any) -> Any:
    return {name: _at(name, read, each) for name, each in _plain(dict, value).items()}


def _record(kind: Any) -> Reader:
    hints = hints_of(kind, include_extras=True)
    readers = {field.name: _reader(hints[field.name]) for field in dataclasses.fields(kind)}
    needed = {
        field.name
        for field in dataclasses.fields(kind)
        if field.default is field.default_factory is dataclasses.MISSING
    }

    def reader(value: Any) -> Any:
        told = _plain(dict, value)
        missing = needed - told.keys()
        if missing:
            raise ValueError(f"{', '.join(sorted(missing))} is missing")
        names = readers.keys() & told.keys()
        return kind(**{name: _at(name, readers[name], told[name]) for name in names})

    return reader


def _at(place: object, read: Reader, value: Any) -> Any:
    """What is read there; an error begins with the place."""
    try:
        return read(value)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
