"""Planes with the sample app on them."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import modal
import pytest

from .fixtures import modal_plane, namespaces
from .plane import PACKAGE, ModalPlane, client_environment

__all__ = ["modal_plane", "namespaces"]

MODAL = str(Path(sys.executable).with_name("modal"))

DEPLOY = f"""
import modal
modal.Secret.objects.create("sample-secret", {{"SAMPLE": "known"}})
from {PACKAGE}.sample_app import app
app.deploy()
"""


@contextlib.contextmanager
def sample_plane(state: Path, *arguments: str) -> Iterator[ModalPlane]:
    """A plane with the sample app; this process is its client."""
    with ModalPlane(state, *arguments) as plane, client_environment(plane):
        plane.run(sys.executable, "-c", DEPLOY)
        yield plane


def open_gate(name: str) -> None:
    """Let the calls of `Counter.wait_for(name)` end."""
    modal.Dict.from_name("sample-gates", create_if_missing=True)[name] = True


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModalPlane]:
    """One for all tests of a module; grace periods are short."""
    state = tmp_path_factory.mktemp("plane")
    with sample_plane(state, "--timeout-grace", "1.5", "--preemption-grace", "5") as plane:
        yield plane
