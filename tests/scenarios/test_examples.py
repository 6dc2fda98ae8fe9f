"""Every example on this machine; GSM8K in all modes, killed in the middle and called again."""

import os

import pytest

from tests.support.example_runs import SHORT, SMALL, finished, killed, tiny_model
from tests.support.judge_stub import JudgeStub
from tests.support.paths import VLLM_PYTHON

MODES = ("single_node", "single_node_vllm_colocate", "single_node_vllm_serve", "distributed")


@pytest.fixture
def folder(tmp_path):
    tiny_model(tmp_path)
    return tmp_path


@pytest.fixture
def env(killable):
    return {"PREFECT_API_URL": killable.api_url}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_of_gsm8k_ends_with_the_same_bits_after_a_kill(mode, folder, env):
    options = ("--mode", mode, *SHORT, *SMALL, "--max_steps", "6")
    if "vllm" in mode:
        options += ("--vllm_python", os.fspath(VLLM_PYTHON))
    undisturbed = finished(folder, "gsm8k_grpo.py", *options, run_id="undisturbed", env=env)
    killed(folder, "gsm8k_grpo.py", *options, run_id="killed", step=2, env=env)
    resumed = finished(folder, "gsm8k_grpo.py", *options, run_id="killed", env=env)
    assert resumed.manifest.attempts == 2
    assert resumed.manifest.final.weights_sha256 == undisturbed.manifest.final.weights_sha256
    assert resumed.metrics() == undisturbed.metrics()


def test_the_judge_of_the_example_scores_and_is_paid(folder, env):
    options = ("--model", "./tiny", "--max_steps", "2", "--max_tokens", "8")
    with JudgeStub(lambda body: 7.0) as stub:
        asked = (*options, "--base_url", stub.url)
        run = finished(folder, "judge.py", *asked, run_id="judged", env=env)
        assert stub.paid
    scored = run.metrics()[0]
    assert scored["rewards/judge/mean"] == 7.0 and "rewards/brief/mean" in scored


def test_an_adapter_is_trained_and_merged(folder, env):
    options = (*SHORT, "--backend", "local", "--max_steps", "1")
    run = finished(folder, "lora_on_modal.py", *options, run_id="adapter", env=env)
    final = run.store.path(run.manifest.final.path)
    assert (final / "adapter_config.json").exists()
