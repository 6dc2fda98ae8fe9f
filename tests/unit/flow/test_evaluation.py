"""mortal_steps.orchestration.evaluation"""

import asyncio

import pytest

from mortal_steps.errors import WorkerLostError
from mortal_steps.orchestration.evaluation import HeldOut, WholeEvaluation
from mortal_steps.types import FileRef, PolicyVersion, SamplingParams, WeightsRef

FILE = FileRef(path="data/eval.json", sha256="")
SAMPLING = SamplingParams(max_tokens=1)
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

    bounds = [(0, 1), (1, 2), (2, 3), (3, 4)]
    part = HeldOut(problems=FILE, bounds=bounds, sampling=SAMPLING, num_generations=1)
    held_out = WholeEvaluation(parts=[part], harnesses=[], max_tokens=1)
    with pytest.raises(WorkerLostError):
        await held_out.score(call, 3, WEIGHTS, "evaluations/000003")
    assert sampled == [0, 1, 2, 3]
    assert ended == [1, 2, 3]
