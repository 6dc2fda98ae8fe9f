"""Rewards in a container of Modal's: environments as users write them run programs in sandboxes,
and what their judge is paid is known here."""

import asyncio
import json
import os

import pytest

from mortal_steps.orchestration.open_run import open_run
from mortal_steps.runs.costs import add_up
from tests.support import bare_flow
from tests.support.judge_stub import JudgeStub
from tests.support.modal.project import ON_MODAL, SHORT, project
from tests.support.modal.scored import scored

ENVIRONMENTS = """
import os
import modal
from mortal.rewards import RewardEnvironment, SandboxConfig


def extract_code(text):
    return text.partition("```python\\n")[2].partition("```")[0]


class CodeExecutionReward(RewardEnvironment):
    name = "CodeExecution"

    def score(self, completion: str, prompt: str, **kwargs) -> float:
        code = extract_code(completion)
        if not code:
            return 0.0
        result = self.execute_in_function(code)  # runs on Modal
        return 1.0 if result.success else 0.0

    def score_batch(self, completions, prompts, **kwargs):
        codes = [extract_code(c) for c in completions]
        results = self.execute_batch_in_function(codes)  # parallel on Modal
        return [1.0 if r.success else 0.0 for r in results]


class NumpyTestEnv(RewardEnvironment):
    name = "NumpyTest"
    sandbox_config = SandboxConfig(
        image=modal.Image.debian_slim().pip_install("numpy", "scipy").env({"SAMPLE": "image"}),
        timeout=60,
    )

    def score(self, completion: str, prompt: str, **kwargs) -> float:
        result = self.execute_in_sandbox(extract_code(completion))
        return 1.0 if result.success else 0.0


def format_reward(completions, **kwargs):
    assert not [name for name in os.environ if name.startswith("MODAL_")]
    return [1.0 if "```" in text else 0.0 for text in completions]
"""
NUMPY = "```python\nimport os, numpy\nassert numpy.arange(3).sum() == 3\n{}\n```"
COMPLETIONS = (
    NUMPY.format("assert os.environ['SAMPLE'] == 'image'"),
    NUMPY.format("assert 'SAMPLE' not in os.environ"),
    "```python\n1/0\n```",
    "no code",
)


def terms(stub: JudgeStub) -> str:
    judge = {"type": "judge", "model": "m", "base_url": stub.url, "score_range": [0, 1000]}
    own = ["CodeExecutionReward", "NumpyTestEnv", "format_reward"]
    functions = [{"type": "function", "function": f"own_rewards.py:{name}"} for name in own]
    given = [*functions, {**judge, "prices": {"input": 1000.0, "output": 5000.0}}]
    return json.dumps(given).replace('": ', '" = ')  # as TOML


def test_the_documented_environments_run_programs_in_a_few_sandboxes(plane, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("sandboxes of a plane are root's only where the plane is")
    before = len(plane.events("sandbox_started"))

    with JudgeStub() as stub, bare_flow.bare_in(tmp_path):
        config = project(
            tmp_path,
            "shut-in",
            *(*ON_MODAL, *SHORT, "compute.modal.rewards=modal", "rewards.dry_run=false"),
            *(f"rewards.terms={terms(stub)}", "rewards.functions=[]", "rewards.sandbox.lanes=2"),
        )
        (tmp_path / "own_rewards.py").write_text(ENVIRONMENTS)
        run = open_run(config)
        rewarded, spent = asyncio.run(scored(run, COMPLETIONS))
        assert len(stub.paid) == 4
    (scores,) = rewarded.rewards
    columns = {name: [row[name] for row in scores] for name in scores[0]}
    assert columns.pop("CodeExecutionReward") == [0.0, 1.0, 0.0, 1.0]
    assert columns.pop("NumpyTestEnv") == [1.0, 0.0, 0.0, 1.0]
    assert columns.pop("format_reward") == [1.0, 1.0, 1.0, 0.0]
    assert rewarded.failures == ()
    assert len(plane.events("sandbox_started")) - before == 4
    plane.wait_until(lambda: len(plane.events("sandbox_ended")) - before >= 4, 60)
    costs = add_up(run.store.root)
    assert costs is not None and costs.by_kind["judge"] == pytest.approx(0.8)
    assert spent > 0.8
