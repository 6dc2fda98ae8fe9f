"""A tiny model for every test of the policy, and runs of it."""

import pytest
import torch

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, SETUPS, make_run


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    """Two threads on contended cores are many times slower than one."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def model_path(tmp_path_factory):
    """A random Qwen3-shaped model: hidden 64, 2 layers, one token per character."""
    folder = tmp_path_factory.mktemp("model")
    build_model(folder, NewModelConfig(), seed=0)
    return str(folder)


@pytest.fixture(scope="session")
def uninterrupted(model_path, tmp_path_factory):
    """Digests of everything at the end of a run that nothing disturbed, by setup."""
    known = {}

    def ask(setup):
        if setup not in known:
            folder = tmp_path_factory.mktemp(f"whole-{setup}")
            run = make_run(folder, make_config(**SETUPS[setup]), model_path)
            actor = run.actor()
            actor.prepare(step=0)
            run.train(actor, range(NUM_STEPS))
            known[setup] = run.state_digests(actor, NUM_STEPS)
        return known[setup]

    return ask


@pytest.fixture
def run(model_path, tmp_path):
    return make_run(tmp_path / "run", make_config(), model_path)


@pytest.fixture
def actor(run):
    actor = run.actor()
    actor.prepare(step=0)
    return actor
