"""What is deployed: a container must run the code of the flow's machine, and have the Volume that
the run is on. Imports no Modal."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version

import mortal_steps
from mortal_steps.system.sources import sources_sha256

VOLUME_VARIABLE = "MORTAL_VOLUME"
"""Of the environment: the Volume that holds the runs."""
CLUSTER_VARIABLE = "MORTAL_ACTOR_CLUSTER"
"""The same of actors that are in several: their `Cluster` as JSON; empty: there are none."""
HUB_VOLUME = "mortal-hub"
"""The Volume that holds the cache of the Hugging Face hub, as HF_HOME."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Release:
    """The code of one side."""

    mortal: str
    """Version."""
    sources: str
    """Digest of every file of `mortal_steps`."""
    modal: str
    """Version of Modal's client."""
    python: str
    """Such as `3.11`."""

    def runs_with(self, other: Release) -> bool:
        """Whether calls between the two mean the same on both sides."""
        return self.sources == other.sources

    def __str__(self) -> str:
        return f"mortal {self.mortal} ({self.sources[:12]}) with modal {self.modal}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Cluster:
    """The containers of an actor that is in several."""

    containers: int
    gpu: str
    """Of each, such as `H100:8`."""
    cpu: float
    memory_mb: int

    def __str__(self) -> str:
        return f"{self.containers} x {self.gpu}, {self.cpu:g} cores, {self.memory_mb} MiB each"


@dataclass(frozen=True, kw_only=True, slots=True)
class Deployed:
    """An app on Modal."""

    release: Release
    volume: str
    """Name of the Volume that its containers have, whatever the run."""
    cluster: Cluster | None = None
    """Of actors in several containers."""


def this_release() -> Release:
    major, minor, _ = platform.python_version_tuple()
    return Release(
        mortal=mortal_steps.__version__,
        sources=sources_sha256(),
        modal=version("modal"),
        python=f"{major}.{minor}",
    )


def other_release(deployed: Release, here: Release) -> str:
    """Why the two cannot work together, and what to do."""
    return (
        f"the deployed app is {deployed}, this machine has {here}; `mortal deploy` brings this "
        "machine's code there"
    )


def other_volume(deployed: str, wanted: str) -> str:
    """Why the app cannot serve the run, and what to do."""
    return (
        f"the deployed app has the Volume {deployed}, and the run is to be on {wanted} "
        f"(compute.modal.volume); an app has one. Give {wanted} an app of its own: name one in "
        f"compute.modal.app, too, and call `mortal deploy CONFIG`; or leave the run on {deployed}"
    )


def other_cluster(deployed: Cluster | None, wanted: Cluster) -> str:
    """Why the app cannot serve the run's actor, and what to do."""
    return (
        f"the run's actor is in several containers (training.ranks): {wanted}; the deployed app "
        f"has {deployed or 'none in more than one'}. `mortal deploy CONFIG` with this run's "
        "configuration brings it there; an app has one such actor, so give runs that want another "
        "one an app of their own (compute.modal.app)"
    )
