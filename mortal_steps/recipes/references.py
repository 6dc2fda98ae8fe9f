"""`stage:NAME` and `stage:NAME/OUTPUT`: what another stage of the recipe produces."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

REFERENCE = re.compile(r"stage:(?P<stage>[A-Za-z0-9][\w.-]*)(?:/(?P<output>[\w.-]+))?")
MAIN = ""
"""Name of the output that `stage:NAME` stands for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Reference:
    """A value of a stage's table that stands for an output of another stage."""

    key: str
    """Where it stands, such as `model.name_or_path` or `rewards.terms[0].model`."""
    stage: str
    output: str = MAIN

    def __str__(self) -> str:
        return f"stage:{self.stage}" + (f"/{self.output}" if self.output else "")


def references_in(values: Any, key: str = "") -> Iterator[Reference]:
    """Yield every reference in the values of a table, in their order."""
    if isinstance(values, Mapping):
        for name, value in values.items():
            yield from references_in(value, f"{key}.{name}" if key else str(name))
    elif isinstance(values, list | tuple):
        for number, value in enumerate(values):
            yield from references_in(value, f"{key}[{number}]")
    elif (found := find_reference(values, key)) is not None:
        yield found


def find_reference(value: Any, key: str) -> Reference | None:
    """Return the reference that a value is; None for any other value."""
    found = REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        return None
    return Reference(key=key, stage=found["stage"], output=found["output"] or MAIN)


def replaced(values: Any, answer: Callable[[Reference], Any], key: str = "") -> Any:
    """Return a copy of the values with the answer in the place of each reference."""
    if isinstance(values, Mapping):
        return {
            name: replaced(value, answer, f"{key}.{name}" if key else str(name))
            for name, value in values.items()
        }
    if isinstance(values, list | tuple):
        return [replaced(each, answer, f"{key}[{number}]") for number, each in enumerate(values)]
    found = find_reference(values, key)
    return values if found is None else answer(found)
