"""Sampling with vLLM, whose environment is another one than everybody else's."""

import pytest

from tests.support.modal.project import ON_MODAL, assert_same
from tests.support.modal.with_vllm import drive_beside
from tests.support.paths import VLLM_PYTHON


@pytest.mark.vllm
@pytest.mark.skipif(
    not VLLM_PYTHON.exists(), reason=f"no {VLLM_PYTHON}; `make vllm-env` builds one"
)
def test_vllm_in_a_container_gives_the_bits_that_it_gives_here(plane, tmp_path):
    """In a container of an image of its own, and in a process here: the same interpreter is behind
    both. `make modal-vllm` compares with a node, too."""
    before = plane.events("container_started", function="RolloutWorker.*")
    here, apart = drive_beside(tmp_path, {"vllm": (), "vllm-apart": ON_MODAL})
    assert_same(apart, here)
    (container,) = plane.events("container_started", function="RolloutWorker.*")[len(before) :]
    assert container["python"] == str(VLLM_PYTHON)
