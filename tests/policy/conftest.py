"""A tiny model for every test of the policy."""

import pytest
import torch

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.new_model import build_model


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
