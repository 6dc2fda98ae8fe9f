"""Asking an engine, vLLM in a process with another interpreter."""

import json

from tests.support.rollout import planted
from tests.support.rollout.vllm_forks import vllm_forks


def asked(module, job, timeout_s=600):
    """Return what the module prints last, as JSON, for a job; and what it said on the way."""
    code, output, errors = vllm_forks().run(["-m", module, json.dumps(job)], timeout_s)
    assert code == 0, errors[-5000:]
    return json.loads(output.splitlines()[-1]), vllm_forks().said() + errors


def tried(job, engine, timeout_s=600):
    """Return what `planted` finds with an engine: transformers is here, vLLM in its interpreter."""
    job = {**job, "engine": engine}
    if engine == "transformers":
        return json.loads(json.dumps(planted.main(job)))
    return asked(planted.__name__, job, timeout_s)[0]
