"""Fixtures for tests that need a control plane; a conftest imports them by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.modal_plane.plane import ModalPlane


@pytest.fixture(scope="module")
def modal_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModalPlane]:
    """A plane for the tests of a module, with nothing deployed to it."""
    with ModalPlane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane
