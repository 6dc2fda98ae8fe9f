"""The project's app on a control plane of its own."""

from tests.modal_plane.fixtures import namespaces
from tests.support.modal.deployed import deployed, here, plane

__all__ = ["deployed", "here", "namespaces", "plane"]
