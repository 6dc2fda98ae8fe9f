"""The places where programs can run. To add one, write one file and one line in `PLACES`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from mortal_steps.extensions import Registry, simple
from mortal_steps.sandbox.pool import Pool

PLACES = Registry(
    "rewards.sandbox.place",
    simple(
        {
            "local": "mortal_steps.sandbox.local:LocalPlace",
            "modal": "mortal_steps.compute.modal.sandboxes:ModalPlace",
        }
    ),
)
"""`rewards.sandbox.place` -> its class, which is constructed with `PlaceSettings`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceSettings:
    """Where programs run. The process that scores receives these settings."""

    kind: str = "local"
    """A key of `PLACES`."""
    lanes: int | None = None
    """Number of programs that one process runs at the same time; None: the place decides."""
    allow_unisolated: bool = False
    """Whether programs may run if they cannot be isolated."""
    patience_s: float = 48.0
    """Seconds that a remote service may take to start, restarts included, for one program."""
    app: str = "mortal"
    """Name of the app on Modal."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables for the client of a remote service. Reward functions see none of
    them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Needs:
    """What the programs of one reward environment need."""

    who: str
    """Name of the reward environment, for messages."""
    image: Any = None
    """A `modal.Image`."""
    memory_mb: int = 1024
    """MiB that a program may use."""
    allow_unisolated: bool = False
    """See `PlaceSettings`. It is allowed if either of the two allows it."""


class Place(Protocol):
    """Somewhere programs can run."""

    def prepare(self, needs: Needs) -> None:
        """Do now what takes long the first time, such as building an image."""
        ...

    def pool(self, needs: Needs) -> Pool[Any]:
        """Lanes that meet the needs; equal needs get the same lanes.

        Raises a `MortalError` that says why programs cannot run here.
        """
        ...

    def close(self) -> None:
        """End all lanes at once. No program is running any more when this is called."""
        ...


def place_of(settings: PlaceSettings) -> Place:
    """The place that the settings name. Raises `ConfigError` for one that cannot be
    imported."""
    make: Callable[[PlaceSettings], Place] = PLACES.load(settings.kind)
    return make(settings)
