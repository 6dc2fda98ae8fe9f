"""mortal_steps.orchestration.evaluation"""

import asyncio

import pytest

from mortal_steps.config import EvaluationConfig, RewardsConfig
from mortal_steps.errors import WorkerLostError
from mortal_steps.orchestration.evaluation import whole_evaluation
from mortal_steps.plan.held_out import HeldOutSets
from mortal_steps.types import FileRef, PolicyVersion, SamplingParams, WeightsRef

FILE = FileRef(path="data/eval.json", sha256="")
SAMPLING = SamplingParams(max_tokens=1)
FOLDER = "evaluations/000003"
WEIGHTS = WeightsRef(version=PolicyVersion(3), path="weights/v3", sha256="")


async def test_it_fails_once_no_shard_is_sampled_any_more():
    sampled, ended = [], []

    async def call(kind, role, method, request):
        if method == "reward":
            return request
        sampled.append(request.shard)
        if request.shard == 0:
            raise WorkerLostError("it was killed")
        await asyncio.sleep(0.1)
        ended.append(request.shard)
        return request

    held_out = HeldOutSets(
        rewards=RewardsConfig(),
        evaluation=EvaluationConfig(),
        sizes={},
        num_problems=4,
        num_steps=3,
    )
    whole = whole_evaluation(
        *(held_out, 3, WEIGHTS, FOLDER), problems=FILE, num_shards=4, sampling=SAMPLING
    )
    with pytest.raises(WorkerLostError):
        await whole.score(call, FOLDER)
    assert sampled == [0, 1, 2, 3]
    assert ended == [1, 2, 3]
