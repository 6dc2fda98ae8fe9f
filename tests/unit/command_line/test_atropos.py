"""`mortal atropos`: what its options make of a run."""

import pytest
from typer.testing import CliRunner

from mortal import driver
from mortal.cli import app

SEEDS = {
    "training.learning_rate": 1e-5,
    "training.max_steps": 10,
    "training.rows": 64,
    "training.accumulation_steps": 32,
    "training.use_lora": False,
    "rollout.source_options": {"url": "http://localhost:8000", "seq_len": 2048, "port": 9001},
    "rollout.sync_weights_every": 3,
    "rollout.weight_sync": "checkpoint",
    "algorithm.clip_eps": 0.2,
    "runs_dir": "trained_model_checkpoints",
    "checkpoints.save_steps": 3,
    "logging.report_to": (),
}


@pytest.fixture
def made(monkeypatch):
    """Return the configuration that the command would drive, or what it complains of."""
    runs = []
    monkeypatch.setattr(driver, "drive", runs.append)

    def make(*arguments):
        ended = CliRunner().invoke(app, ["atropos", "--model-name", "some/model", *arguments])
        return runs.pop() if ended.exit_code == 0 else ended.output

    return make


def value(config, key):
    for name in key.split("."):
        config = getattr(config, name)
    return config


def test_without_options_it_is_the_example_trainers_run(made):
    config = made()
    assert {key: value(config, key) for key in SEEDS} == SEEDS
    assert config.model.name_or_path == "some/model"
    assert config.run_id.startswith("atropos-")
    assert made("--set", "run_id=mine").run_id == "mine"


def test_each_bridge_has_its_way_of_syncing_weights(made):
    assert made("--weight-bridge-mode", "shared_vllm").rollout.weight_sync == "direct"
    assert made("--single-copy").rollout.weight_sync == "direct"
    adapter = made("--weight-bridge-mode", "lora_only")
    assert adapter.training.use_lora
    lora = adapter.training.lora
    found = (lora.r, lora.alpha, lora.dropout, lora.target_modules)
    assert found == (16, 32, 0.05, ("q_proj", "v_proj"))


def test_options_reach_the_run(made):
    config = made(
        *("--batch-size", "3", "--gradient-accumulation-steps", "5", "--use-wandb"),
        *("--wandb-project", "p", "--wandb-group", "g", "--device", "cuda:1"),
        *("--set", "training.max_steps=7", "--run-id", "mine", "--vllm-port", "9100"),
    )
    assert config.training.rows == 15
    assert config.training.accumulation_steps == 5
    assert config.logging.report_to == ("wandb",)
    assert config.rollout.source_options["wandb_group"] == config.logging.group == "g"
    assert config.rollout.ports == range(9100, 9101)
    assert config.compute.local.actor.devices == ("1",)
    assert (config.training.max_steps, config.run_id) == (7, "mine")


@pytest.mark.parametrize(
    "arguments, said",
    [
        (("--batch-size", "1", "--gradient-accumulation-steps", "1"), "2 sequences or more"),
        (("--device", "tpu"), "name a GPU as cuda:N"),
        (("--weight-bridge-mode", "all"), "none, shared_vllm, lora_only"),
    ],
)
def test_what_cannot_be_is_told_of(made, arguments, said):
    assert said.replace(" ", "") in made(*arguments).replace(" ", "").replace("\n", "").replace(
        "│", ""
    ).replace("'", "")
