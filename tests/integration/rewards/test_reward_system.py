"""Functions, environments and ready-made environments in one list, scored by a reward worker."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.worker import RewardWorker
from mortal_steps.store import RunStore
from mortal_steps.types import RewardedShard
from tests.support.judge_stub import JudgeStub
from tests.support.rewards import user_environments
from tests.support.rewards.shards import CHAT, make_request, make_shard

SOURCE = '''
from mortal.rewards.examples import CodeExecutionEnvironment, LLMJudgeEnvironment


def format_reward(completions, **kwargs):
    """Messages, as TRL hands chat completions over."""
    responses = [c[0]["content"] for c in completions]
    return [1.0 if "<answer>" in r else 0.0 for r in responses]


def quality_reward(completions, prompts, **kwargs):
    return [len(c[0]["content"]) / 100 for c in completions]


env = CodeExecutionEnvironment(partial_credit=True)
judge = LLMJudgeEnvironment(model="gpt-4o-mini", score_range=(0, 10))
'''

RIGHT = "<answer>\n```python\nimport numpy\ndef add(a, b):\n    return a + b\n```\n</answer>"
HALF = "```python\ndef add(a, b):\n    return 3\n```"
FAILS = "```python\n1 / 0\n```"
NOTHING = "I cannot."

NAMES = (
    *("format_reward", "CodeExecutionReward", "quality_reward"),
    *("NumpyTestEnv", "env", "judge"),
)


@pytest.fixture
def stub(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeStub]:
    with JudgeStub(lambda body: 7.0, key="sk-mine") as made:
        monkeypatch.setenv("OPENAI_BASE_URL", made.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
        monkeypatch.delenv("PREFECT_API_URL", raising=False)
        yield made


def test_rewards_of_every_form_score_beside_each_other(
    stub: JudgeStub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rewards.py").write_text(Path(user_environments.__file__).read_text() + SOURCE)
    config = RunConfig(
        rewards={
            "functions": [f"rewards.py:{name}" for name in NAMES],
            "weights": [0.3, 1.0, 0.2, 1.0, 1.0, 1.0],
        }
    )
    cases = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]
    texts = (RIGHT, HALF, FAILS, NOTHING)
    shard = make_shard(texts, prompt=CHAT, columns={"testcases": cases})
    store = RunStore(tmp_path / "run")
    worker = RewardWorker(run_dir="run", plan=Plan(config).scoring, num_steps=10)
    ref = worker.reward(request=make_request(store, shard))
    worker.close()
    ((*rows,),) = store.read_record(ref.file, RewardedShard).rewards
    expected = {
        "format_reward": [1.0, 0.0, 0.0, 0.0],
        "CodeExecutionReward": [1.0, 1.0, 0.0, 0.0],
        "quality_reward": [len(text) / 100 for text in texts],
        "NumpyTestEnv": [1.0, 1.0, 0.0, 0.0],
        "env": [1.0, 0.5, 0.0, 0.0],
        "judge": [7.0] * 4,
    }
    assert {name: [row[name] for row in rows] for name in NAMES} == expected
    assert len(stub.paid) == 4
    quality = sum(expected["quality_reward"])
    assert ref.reward_sum == pytest.approx(0.3 * 1 + 1.0 * 2 + 0.2 * quality + 2 + 1.5 + 28)
