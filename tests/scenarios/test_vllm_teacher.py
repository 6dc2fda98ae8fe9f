"""A run that learns from a teacher in vLLM: killed on the way, it ends with the same bits."""

from pathlib import Path

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.runs.run import find_run
from tests.support.bare_flow import Killed, bare_in, go_on, project_config
from tests.support.paths import VLLM_PYTHON

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        not VLLM_PYTHON.exists(), reason=f"no {VLLM_PYTHON}; `make vllm-env` builds one"
    ),
]
SETTINGS = {
    "algorithm.type": "opd",
    "algorithm.teachers.main": "{name_or_path='teacher', engine='vllm'}",
    "algorithm.beta": "0.0",
    "algorithm.loss_top_k": "4",
    "training.num_generations": "1",
    "training.gradient_accumulation_steps": "2",
    "training.max_steps": "4",
    "rollout.staleness": "1",
    "rewards.functions": "[]",
    "evaluation.functions": '["rewards.py:matches"]',
    "compute.local.rollout.python": VLLM_PYTHON,
}


def records(run_id):
    found = find_run(Path("runs"), run_id).store.path("steps").rglob("rewards-*")
    return {path.relative_to(f"runs/{run_id}"): path for path in found}


def test_a_killed_run_asks_nothing_twice_and_ends_with_the_same_bits(tmp_path):
    with bare_in(tmp_path):
        config = project_config(tmp_path, **SETTINGS)
        new = config.model.new or NewModelConfig()
        (tmp_path / "teacher").mkdir()
        build_model(tmp_path / "teacher", new.model_copy(update={"num_layers": 3}), seed=5)
        whole = go_on(config)
        killed = config.model_copy(update={"run_id": "killed"})
        with pytest.raises(Killed):
            go_on(killed, killed_after=1)
        before = {path: path.stat().st_mtime_ns for path in records("killed").values()}
        run = go_on(killed)
        assert run.manifest.final == whole.manifest.final
        assert before
        assert before == {path: path.stat().st_mtime_ns for path in before}
        mine, others = records("killed"), records("run")
        assert mine.keys() == others.keys()
        for name, path in mine.items():
            assert path.read_bytes() == others[name].read_bytes()
