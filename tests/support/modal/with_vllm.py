"""Runs of two steps that sample with vLLM, in several places beside each other."""

import asyncio

import pytest

from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.open_run import open_run
from tests.support import bare_flow
from tests.support.modal.bare_run import drive
from tests.support.modal.project import project
from tests.support.paths import VLLM_PYTHON

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


def drive_beside(folder, places):
    """A run for each place, by its id and the settings that put it there; the runs at their end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(preflight, "check", bare_flow.unchecked)
        runs = [
            open_run(project(folder, run_id, *WITH_VLLM, *settings))
            for run_id, settings in places.items()
        ]

        async def drive_all():
            await asyncio.gather(*map(drive, runs))

        asyncio.run(drive_all())
    return runs
