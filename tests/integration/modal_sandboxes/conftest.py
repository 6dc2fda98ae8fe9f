"""A control plane with nothing deployed; this process has programs run there."""

import os
from collections.abc import Iterator

import pytest

from mortal_steps.places.modal.sandboxes import ModalExecutor
from mortal_steps.sandbox.executors import ExecutorSettings
from tests.modal_plane.fixtures import modal_plane, namespaces
from tests.modal_plane.plane import ModalPlane

__all__ = ["modal_plane", "namespaces"]


@pytest.fixture(scope="module")
def variables(modal_plane: ModalPlane) -> dict[str, str]:
    """What Modal's client needs; this process's own environment does not have it."""
    if os.geteuid() != 0:
        pytest.skip("sandboxes of a plane are root's only where the plane is")
    return {name: value for name, value in modal_plane.env.items() if name.startswith("MODAL_")}


@pytest.fixture(scope="module")
def place(variables: dict[str, str]) -> Iterator[ModalExecutor]:
    """Two sandboxes for each image."""
    made = ModalExecutor(ExecutorSettings(kind="modal", lanes=2, variables=variables))
    yield made
    made.close()
