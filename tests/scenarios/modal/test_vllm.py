"""Sampling with vLLM, whose environment is another one than everybody else's."""

import pytest

from mortal_steps.rollout.engines.table import VLLM_PYTHON as PYTHON_ON_NODE
from tests.support.modal.project import ON_MODAL, assert_same
from tests.support.modal.with_vllm import drive_beside
from tests.support.paths import VLLM_PYTHON

PLACES = {
    "vllm": (),
    "vllm-apart": ON_MODAL,
    "vllm-node": (*ON_MODAL, "compute.mode=single_node", "compute.modal.secrets=['node']"),
}


@pytest.mark.vllm
@pytest.mark.skipif(
    not VLLM_PYTHON.exists(), reason=f"no {VLLM_PYTHON}; `make vllm-env` builds one"
)
def test_vllm_gives_the_same_bits_here_in_a_container_of_its_own_and_in_one_of_a_node(
    plane, tmp_path
):
    """The same interpreter is behind all three: the image of a container of its own names it, in
    single-node mode a Secret does."""
    import modal  # it reads where Modal is once, when it is imported

    modal.Secret.objects.create("node", {PYTHON_ON_NODE: str(VLLM_PYTHON)})
    before = plane.events("container_started", function="RolloutWorker.*")
    here, apart, node = drive_beside(tmp_path, PLACES)
    assert_same(apart, here)
    assert_same(node, here)
    (container,) = plane.events("container_started", function="RolloutWorker.*")[len(before) :]
    assert container["python"] == str(VLLM_PYTHON)
