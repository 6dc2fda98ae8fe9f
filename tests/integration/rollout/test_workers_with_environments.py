"""mortal_steps.rollout.worker: rollout workers that are given tools and environments."""

import os
import signal
from pathlib import Path

import pytest

from mortal_steps.errors import RewardError
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.chat_settings import keep_chat
from mortal_steps.rewards.sources import begin_sources
from mortal_steps.rollout.trial import FinishedModelWorker
from mortal_steps.store import RunStore
from mortal_steps.types import Problem, SamplingParams
from tests.support.environments.models import build_model
from tests.support.rewards.processes import assert_ends, supervisors

MODULE = """
import os
import prices

class Shop:
    def reset(self, **row): self.row = row
    def get_reward(self):
        seen = [name for name in ("WANDB_API_KEY", "HF_TOKEN") if name in os.environ]
        return prices.OF_ONE * len(seen) + 10.0 * ("prompt" in self.row)
"""
TERMS = [{"type": "get_reward", "environment": "Shop"}]
CHAT = [{"role": "user", "content": "Buy."}]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("WANDB_API_KEY", "HF_TOKEN"):
        monkeypatch.setenv(name, "secret")
    Path("shop.py").write_text(MODULE)
    Path("prices.py").write_text("OF_ONE = 1.0")
    build_model(Path("model"), "qwen3", context=256)


@pytest.fixture
def made(tmp_path):
    """Makes workers of a run with these settings."""
    workers = []

    def make(**values):
        config = RunConfig.model_validate(
            {
                "model": {"name_or_path": "model", "max_model_len": 256},
                "rollout": {"engine": "transformers"},
                "environment": {"factory": "shop.py:Shop"},
                "rewards": {"terms": TERMS, "credentials": ["WANDB_API_KEY"]},
                **values,
            }
        )
        store = RunStore(tmp_path / "runs/r")
        keep_chat(store, config.model, "model", {})
        begin_sources(store, Plan(config).code, tmp_path, step=0)
        plan = Plan(config).sampler
        workers.append(FinishedModelWorker(run_dir=str(store.root), model_path="model", plan=plan))
        return workers[-1]

    yield make
    for worker in workers:
        worker.close()


def scores(worker, prompt=CHAT):
    problem = Problem(id="train-0", prompt=prompt, columns={"target": 3})
    sampled = worker.sample(
        problems=[problem], num_generations=2, sampling=SamplingParams(max_tokens=4)
    )
    (group,) = sampled.groups
    return [completion.episode.scores["Shop"] for completion in group.completions]


def test_environments_see_named_credentials_and_the_row(made):
    worker = made()
    assert scores(worker) == [11.0, 11.0]
    assert scores(worker, [{"role": "user", "content": ""}]) == [1.0, 1.0]  # it has no prompt
    assert scores(made(rewards={"terms": TERMS})) == [10.0, 10.0]


def test_a_process_that_starts_again_does_not_load_an_edited_environment(made):
    others, worker = supervisors(), made()
    assert scores(worker) == [11.0, 11.0]
    Path("prices.py").write_text("OF_ONE = 2.0")
    assert scores(worker) == [11.0, 11.0]  # the same process, so the same environment
    (process,) = supervisors() - others
    os.kill(process, signal.SIGKILL)
    assert_ends(process)
    with pytest.raises(RewardError, match=r"environments are not those.*prices\.py was altered"):
        scores(worker)


def test_stages_with_the_same_rewards_share_their_episodes(made):
    worker = made()
    worker.start()
    assert worker._started_episodes("generate") is worker._started_episodes("evaluate")
    other = made(evaluation={"functions": ["shop.py:near"]})
    other.start()
    assert other._started_episodes("generate") is not other._started_episodes("evaluate")


def test_closing_a_worker_ends_its_environments(made):
    others, worker = supervisors(), made()
    scores(worker)
    (process,) = supervisors() - others
    worker.close()
    assert_ends(process)
