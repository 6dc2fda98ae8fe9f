"""Fixtures for tests that need a control plane; a conftest imports them by name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .isolation import check_namespaces
from .plane import ModalPlane


@pytest.fixture(scope="session", autouse=True)
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Skip, and say why, where containers cannot have namespaces of their own."""
    try:
        check_namespaces(tmp_path_factory.mktemp("namespaces"))
    except OSError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def modal_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModalPlane]:
    """A plane for the tests of a module, with nothing deployed to it."""
    with ModalPlane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane
