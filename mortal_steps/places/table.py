"""The table of places. An entry holds what code outside of a place's folder asks about it; the
defaults are those of a place that a user wrote."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator

from mortal_steps.extensions import Extension, Registry


@dataclass(frozen=True, kw_only=True, slots=True)
class PlaceKind(Extension):
    """A place, as all other code sees it. Its `factory` is a `Place` of
    mortal_steps/places/base.py."""

    here: bool = False
    """Whether all workers are processes of this machine, and share its GPUs and its memory."""
    shares_files: bool = True
    """Whether workers read the files of this machine, interpreters included, at the same paths.
    Otherwise they are in images, and the run directory is on a Modal Volume."""
    takes_turns: bool = False
    """Whether the actor and a rollout worker may share one machine (`compute.mode =
    "single_node"`)."""
    loads_with_shards: bool = False
    """Whether rollout workers load a version with the first shard that they are to sample with it.
    A call of its own, beforehand, costs workers on another machine more than it gains."""
    saves_beside: bool = True
    """Whether a checkpoint can be written beside the train steps that follow it."""
    costs: bool = True
    """Whether its workers may cost dollars that a run counts (`Compute.spent`)."""
    words: str = "elsewhere"
    """Where a run is, for people."""


PLACES = Registry(
    "compute.backend",
    {
        "local": PlaceKind(
            factory="mortal_steps.places.local.place:LocalPlace",
            here=True,
            takes_turns=True,
            costs=False,
            words="on this machine",
        ),
        "modal": PlaceKind(
            factory="mortal_steps.places.modal.place:ModalPlace",
            shares_files=False,
            takes_turns=True,
            loads_with_shards=True,
            saves_beside=False,  # no file of the Volume may be open between two calls
            words="on Modal",
        ),
        "ray": PlaceKind(
            factory="mortal_steps.places.ray.place:RayPlace",
            costs=False,
            words="on a Ray cluster",
        ),
    },
)
"""The places by their names in `compute.backend`."""

PlaceName = Annotated[str, AfterValidator(PLACES.check)]
"""A name in `PLACES`, or `module:name`."""
