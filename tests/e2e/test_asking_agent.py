"""An agent that asks the model itself, in a few steps: killed and resumed, it ends as one that was
not killed."""

import json
import signal
import tomllib

import pytest
import tomli_w

from mortal_steps.runs.run import find_run
from tests.support.agent_runs import AGENT, FEW_STEPS, merged
from tests.support.command import Mortal, end_driver, wait_for_step
from tests.support.paths import ROOT
from tests.support.undisturbed import assert_same, undisturbed


@pytest.fixture(scope="module")
def mortal(tmp_path_factory, server):
    folder = tmp_path_factory.mktemp("asking")
    shipped = tomllib.loads((ROOT / "deployments/configs/agent.toml").read_text())
    values = merged(shipped, {**FEW_STEPS, "rewards": {}})
    values["environment"] = {"type": "agent", "agent": f"{AGENT / 'loop.py'}:opens"}
    values["data"] = {"source": str(AGENT / "train.jsonl"), "max_samples": 200, "eval_samples": 4}
    values["training"]["num_generations"] = 3
    values["model"]["warm_start"] |= {"steps": 50, "batch_size": 32}
    (folder / "tiny.toml").write_text(tomli_w.dumps(values))
    return Mortal(folder, server.api_url)


@pytest.fixture(scope="module")
def resumed(mortal):
    process = mortal.start("train", "tiny.toml", "--run-id", "killed")
    wait_for_step(mortal, "killed", 1, process)
    end_driver(mortal, "killed", signal.SIGKILL)
    process.communicate()
    mortal("resume", "killed")
    return find_run(mortal.folder / "runs", "killed")


def test_killed_and_resumed_it_has_the_bits_of_a_run_that_was_not(mortal, resumed):
    assert_same(mortal.folder, "killed", undisturbed(mortal.folder))


def test_the_result_of_the_agent_is_the_reward(mortal, resumed):
    lines = resumed.store.path("metrics.jsonl").read_text().splitlines()
    metrics = [json.loads(line) for line in lines]
    assert len(metrics) == 3
    assert "rewards/opens/mean" in metrics[0]
    assert any(row["tools/call_frequency"] > 0 for row in metrics)
    assert "ask: " in mortal("samples", "killed", "--step", "1")
