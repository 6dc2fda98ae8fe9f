"""A tiny model, to ask TRL itself how it calls reward functions."""

import pytest
import torch

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model


@pytest.fixture(scope="session")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("model")
    build_model(folder, NewModelConfig(hidden_size=32, num_layers=1), seed=0)
    return str(folder)
