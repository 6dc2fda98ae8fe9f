"""Every process of a run killed with SIGKILL: `make chaos` in short."""

import pytest

from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config
from tests.support.bare_flow import bare_in, go_on
from tests.support.chaos.schedule import STARTING, Shot
from tests.support.chaos.server import KillableServer
from tests.support.chaos.variant import Variant

STEPS = 12


def inside(stage, victim, fraction=0.5):
    return Shot(victims=(victim,), stage=stage, moment="inside", fraction=fraction)


def after(stage, *victims):
    return Shot(victims=victims, stage=stage, moment="after")


def while_starting(victim, starter):
    return Shot(victims=(victim,), stage=STARTING, moment="inside", fraction=0.5, starter=starter)


VOLLEYS = [
    (inside("generate", "rollout-0"),),
    (inside("reward", "host"),),
    (after("sync_weights", "server"),),
    (inside("train_step", "actor-0"), while_starting("rollout-1", "actor-0")),
    (inside("train_step", "flow"), inside("start_workers", "actor-0", 0.05)),
    (inside("evaluate", "reward-0"),),
]
USUAL_S = {"generate": 0.05, "reward": 0.05, "train_step": 0.1, "evaluate": 0.2, "save_final": 0.05}
USUAL_S |= {"start_workers": 5.0, "start": 4.0, "flow": 4.0}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with KillableServer(tmp_path_factory.mktemp("server")) as server:
        yield server


def test_a_run_killed_everywhere_ends_with_the_same_bits(server, tmp_path):
    """Generating beside training; `make chaos` kills every variant of a run 200 times."""
    variant = Variant("staleness-1", tmp_path, server, STEPS, print)
    metrics = train_in_this_process(variant)
    versions = [row["policy_version"] for row in metrics]
    assert versions == [max(0, step - 1) for step in range(STEPS)]
    variant.expect("whole", USUAL_S)
    killed = []
    for run in variant.under_fire(VOLLEYS):
        assert run.faults == ()
        killed += [one.victim for one in run.outcome.kills]
    shots = [shot for volley in VOLLEYS for shot in volley]
    assert sorted(killed) == sorted(victim for shot in shots for victim in shot.victims)


def train_in_this_process(variant):
    """The metrics of a run without Prefect, servers and workers, which takes a few seconds; beside
    it the one to be killed is made."""
    config = load_config(variant.folder / "chaos.toml", variant.settings)
    with bare_in(variant.folder):
        open_run(config.model_copy(update={"run_id": "killed-1"}))
        return go_on(config.model_copy(update={"run_id": "whole"})).metrics()
