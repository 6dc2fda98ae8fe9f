"""Asking an engine in an interpreter of its own."""

import json
import os
import subprocess

from tests.support.paths import ROOT, VLLM_PYTHON
from tests.support.rollout import planted


def asked(python, module, job, timeout_s=240):
    """Return what the module prints last, as JSON, for a job; and what it said on the way."""
    child = subprocess.run(
        [python, "-m", module, json.dumps(job)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert child.returncode == 0, child.stderr[-5000:]
    return json.loads(child.stdout.splitlines()[-1]), child.stderr


def tried(job, engine, timeout_s=240):
    """Return what `planted` finds with an engine: transformers is here, vLLM in its interpreter."""
    job = {**job, "engine": engine}
    if engine == "transformers":
        return json.loads(json.dumps(planted.main(job)))
    return asked(str(VLLM_PYTHON), planted.__name__, job, timeout_s)[0]
