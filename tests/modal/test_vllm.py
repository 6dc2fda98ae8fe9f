"""Sampling with vLLM, whose image is another environment than everybody else's."""

import asyncio

import pytest

from benchmarks import bare
from benchmarks.modal_chaos import ON_MODAL
from mortal_steps.runs.run import open_run
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
def test_vllm_in_its_own_image_gives_the_bits_that_it_gives_here(plane, tmp_path, monkeypatch):
    """The same interpreter is behind both: a process of this machine, and a container."""
    bare.strip_prefect(monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    runs = [
        open_run(project(tmp_path, run_id, *WITH_VLLM, *settings))
        for run_id, settings in (("here", ()), ("there", ON_MODAL))
    ]

    async def drive_both():
        await asyncio.gather(*map(drive, runs))

    asyncio.run(drive_both())
    assert_same(*runs)
    (container,) = plane.events("container_started", function="RolloutWorker.*")
    assert container["python"] == str(VLLM_PYTHON)
