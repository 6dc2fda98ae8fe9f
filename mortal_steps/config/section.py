"""What every table of the configuration has in common."""

import math
import os.path
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationInfo, field_validator

from mortal_steps.extensions import Extension, Registry


class Section(BaseModel):
    """A table of the configuration. Its numbers are finite."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        allow_inf_nan=False,
        ser_json_inf_nan="constants",  # options for a library may be infinite
    )

    @field_validator("*", mode="before")
    @classmethod
    def _numbers_are_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what Python or pydantic would take for a number: `true` for 1, `"5"` for 5."""
        given = value if isinstance(value, list | tuple) else [value]
        wrong = [one for one in given if type(one) is bool or _reads_as_number(one)]
        if wrong and _is_number(cls.model_fields[str(info.field_name)].annotation):
            quoted = ", without quotes" if isinstance(wrong[0], str) else ""
            raise ValueError(f"must be a number{quoted}")
        return value


def _reads_as_number(value: Any) -> bool:
    """Return whether it is text that could be a number."""
    if not isinstance(value, str):
        return False
    try:
        float(value)
    except ValueError:
        return False
    return True


def _is_number(annotation: Any) -> bool:
    """Return whether a key of this type has a number, several, or none."""
    kinds = leaves(annotation) - {type(None), Ellipsis}
    return bool(kinds) and kinds <= {int, float}


def leaves(annotation: Any) -> set[Any]:
    """Return the types that an annotation is made of, such as {float, None} of `float | None`."""
    parts = get_args(annotation)
    return {kind for part in parts for kind in leaves(part)} if parts else {annotation}


def of_its_kind(
    value: Any, base: type[Section], registry: Registry[Extension], *, imports_own: bool = False
) -> Any:
    """Return a table with a `type` as an instance of the class that the registry has for it, a
    subclass of `base`.

    A user's own kind, whose `type` has a `:`, stays a `base`: the process that it works in imports
    it and lets it check its settings. With `imports_own` it is imported here instead. Raises
    `ValueError` for any other unknown `type`, and what `Registry.load` does.
    """
    if not isinstance(value, Mapping):
        return value
    name = value.get("type", base.model_fields["type"].default)
    if not isinstance(name, str) or (":" in name and not imports_own):
        return value
    try:
        kind = registry.load(registry.check(name))
    except ValueError as error:
        raise ValueError(f"type = {error}") from None
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise ValueError(f"type = {name!r} is no subclass of {base.__name__}")
    return kind.model_validate(dict(value))


def _expanded(path: str) -> str:
    if "\0" in path:
        raise ValueError("holds a NUL character, which no path does")
    return os.path.expanduser(path)


def _carried(options: dict[str, Any]) -> dict[str, Any]:
    for key, value in values_in(options):
        if value is None:
            raise ValueError(f"{key} has no value; leave it out")
        if isinstance(value, float) and math.isnan(value):
            raise ValueError(f"{key} = nan is not a number; give it one, or leave it out")
    return options


def values_in(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield what tables and lists hold in the end, each with its key."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from values_in(inner, f"{key}.{name}" if key else str(name))
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from values_in(inner, key)
    else:
        yield key, value


LocalPath = Annotated[str, AfterValidator(_expanded)]
"""A path on this machine; `~` is the home folder."""
Options = Annotated[dict[str, Any], AfterValidator(_carried)]
"""What a library is given as it is; TOML carries it."""
NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
"""Of runs, which are folders."""
