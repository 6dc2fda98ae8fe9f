"""A run that is begun here, and sent off to go on in Modal alone."""

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.policy.starting_model.new_model import build_model
from tests.support import bare_flow
from tests.support.modal.project import MORTAL, ON_MODAL, SETTINGS, SHORT, at, project

SMALL = NewModelConfig(hidden_size=32, num_layers=1, intermediate_size=32)
MODEL = ("model={}", "model.name_or_path=start", "model.max_model_len=64")
HERE = (*SHORT, *MODEL)
STOP = ("stop", "moving", "--volume=mortal-runs")
TRAIN = ("train", "chaos.toml", "--run-id=moving", "--detach")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("begun")


@pytest.fixture(scope="module")
def staying(folder):
    """The run of a model from here that stays here; beside it `moving`, killed after a step."""
    with bare_flow.bare_in(folder):
        build_model(folder / "start", SMALL, seed=3)
        staying = bare_flow.go_on(project(folder, "staying", *HERE))
        with pytest.raises(bare_flow.Killed):
            bare_flow.go_on(project(folder, "moving", *HERE), killed_after=1)
    return staying


def detach(plane, folder):
    """Send `moving` off by a command that ends at once; its call."""
    settings = [*SETTINGS, *HERE, *ON_MODAL, "compute.modal.rewards=modal"]
    settings = [part for one in settings for part in ("--set", one)]
    plane.run(*MORTAL, *TRAIN, *settings, **at(folder))
    return plane.events("call_spawned", function="orchestrate")[-1]["call"]
