"""Sampling with vLLM, whose environment is another one than everybody else's."""

import asyncio

import modal
import pytest

from benchmarks import bare
from benchmarks.modal_chaos import ON_MODAL
from mortal_steps.compute.modal.colocated import VLLM_PYTHON as PYTHON_ON_NODE
from mortal_steps.orchestration.opening import open_run
from tests.conftest import VLLM_PYTHON
from tests.modal.bare_run import drive
from tests.modal.conftest import project
from tests.modal.test_run import assert_same

WITH_VLLM = (
    "rollout.engine=vllm",
    "training.max_steps=2",
    "training.gradient_accumulation_steps=1",
    "training.max_completion_length=6",
    "rollout.max_tokens=6",
    "rollout.num_shards=1",
    "evaluation.eval_steps=0",
    f"compute.local.rollout.python={VLLM_PYTHON}",
)


@pytest.mark.vllm
@pytest.mark.skipif(
    not VLLM_PYTHON.exists(), reason=f"no {VLLM_PYTHON}; `make vllm-env` builds one"
)
def test_vllm_in_a_container_gives_the_bits_that_it_gives_here(plane, tmp_path, monkeypatch):
    """The same interpreter is behind all: a process of this machine, a container, a process of a
    node, whose image names the interpreter. Here a Secret does."""
    modal.Secret.objects.create("node", {PYTHON_ON_NODE: str(VLLM_PYTHON)})
    places = {
        "vllm": (),
        "vllm-apart": ON_MODAL,
        "vllm-node": (*ON_MODAL, "compute.mode=single_node", "compute.modal.secrets=['node']"),
    }
    bare.strip_prefect(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    here, *others = [
        open_run(project(tmp_path, run_id, *WITH_VLLM, *settings))
        for run_id, settings in places.items()
    ]

    async def drive_all():
        await asyncio.gather(*map(drive, [here, *others]))

    asyncio.run(drive_all())
    for run in others:
        assert_same(run, here)
    (container,) = plane.events("container_started", function="RolloutWorker.*")
    assert container["python"] == str(VLLM_PYTHON)
