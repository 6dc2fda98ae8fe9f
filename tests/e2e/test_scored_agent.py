"""An agent that runs programs and asks a judge, scored by rewards of other kinds beside its own."""

import tomllib

import pytest
import tomli_w

from mortal_steps.rewards.judge.ledger import Spending
from mortal_steps.runs.run import find_run
from tests.support.agent_runs import AGENT, FEW_STEPS, merged
from tests.support.command import Mortal
from tests.support.judge_stub import JudgeStub
from tests.support.paths import ROOT

MADE_UP = "a made-up completion"
"""What rewards are tried on before a run."""
SCORED = """
import loop
from mortal.rewards import RewardEnvironment
from mortal.rewards.examples import LLMJudgeEnvironment

PROGRAMS, JUDGE = RewardEnvironment(), LLMJudgeEnvironment("m", base_url="{url}")


async def scored(base_url, prompt, safe, code) -> dict:
    opened = await loop.opens(base_url, prompt, safe, code)
    printed = PROGRAMS.execute_in_sandbox(f"print(len({{safe!r}}))").stdout
    return {{"reward": opened, "printed": float(printed), "judged": JUDGE.score(safe, "A safe")}}


def programs(completions, **columns):
    return [float(PROGRAMS.execute_in_sandbox("print(7)").stdout) for _ in completions]
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("scored")
    (folder / "loop.py").write_text((AGENT / "loop.py").read_text())
    values = tomllib.loads((ROOT / "deployments/configs/agent.toml").read_text())
    few = {"max_steps": 1, "batch_size": 2, "num_generations": 12}
    values = merged(values, {**FEW_STEPS, "rewards": {}, "training": few})
    values["environment"] = {"type": "agent", "agent": "scored.py:scored"}
    values["data"] = {"source": str(AGENT / "train.jsonl"), "max_samples": 200}
    values["model"]["warm_start"] |= {"steps": 30, "batch_size": 32}
    del values["evaluation"]
    with JudgeStub() as stub:
        (folder / "scored.py").write_text(SCORED.format(url=stub.url))
        terms = [
            {"type": "judge", "model": "m", "base_url": stub.url, "score_range": [0, 999]},
            {"type": "function", "function": "scored.py:programs"},
        ]
        values["rewards"] = {"terms": terms}
        (folder / "tiny.toml").write_text(tomli_w.dumps(values))
        mortal = Mortal(folder, server.api_url)
        mortal("train", "tiny.toml", "--run-id", "scored")
        yield find_run(folder / "runs", "scored"), stub


def test_its_own_reward_and_those_of_judges_and_programs_score_it(trained):
    run, _ = trained
    (row,) = run.metrics()
    assert row["rewards/programs/mean"] == 7.0
    assert 0.0 <= row["rewards/scored/mean"] <= 1.0
    assert any(name.startswith("rewards/judge") for name in row)


def test_each_answer_of_a_judge_is_counted(trained):
    run, stub = trained
    asked = [text for text in stub.paid if text != MADE_UP]
    assert Spending(run.store.root).so_far().answers == len(asked)
    safes = [text for text in asked if len(text) == 3]  # each is an agent's once in its group
    assert len(safes) > len(set(safes)) > 1
