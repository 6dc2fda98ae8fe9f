"""Where programs can run. A place is one file, and one line of `PLACES`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mortal_steps.sandbox.pool import Pool

PLACES: Mapping[str, str] = {
    "local": "mortal_steps.sandbox.local:LocalPlace",
    "modal": "mortal_steps.compute.modal.sandboxes:ModalPlace",
}
"""`rewards.sandbox.place` -> its class, which is made with `PlaceSettings`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceSettings:
    """What the process that scores is told of where programs run."""

    kind: str = "local"
    """Key of `PLACES`."""
    lanes: int | None = None
    """Programs that run at a time; default: the place's own."""
    sharing: int = 1
    """Processes that share the lanes."""
    shared_in: str | None = None
    """Folder by whose files the processes on this machine share them; made at the first need, if
    the folder that it is in is there."""
    allow_unisolated: bool = False
    """Whether to run programs that cannot be shut in."""
    patience_s: float = 48.0
    """How long a service may take to come up, and to come up again, with one program."""
    app: str = "mortal"
    """Of Modal."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """What the client of a service finds in the environment. Reward functions see none of it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What somebody's programs need."""

    who: str
    """The reward environment, for messages."""
    image: Any = None
    """A `modal.Image`."""
    memory_mb: int = 1024
    """What a program may use."""
    allow_unisolated: bool = False
    """See `PlaceSettings`; either of the two allows it."""


class Place(Protocol):
    """Where programs run."""

    def prepare(self, needs: Needs) -> None:
        """Do at once what takes long the first time, such as building an image."""
        ...

    def pool(self, needs: Needs) -> Pool[Any]:
        """Lanes that give what is needed; the same ones for the same needs.

        Raises the `MortalError` that says why programs cannot run here.
        """
        ...

    def close(self) -> None:
        """End all lanes, at once. Nothing runs any more."""
        ...


def place_of(settings: PlaceSettings) -> Place:
    """The place that the settings name."""
    module, _, name = PLACES[settings.kind].partition(":")
    make: Callable[[PlaceSettings], Place] = getattr(importlib.import_module(module), name)
    return make(settings)
