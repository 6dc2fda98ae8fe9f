"""GSM8K's example on a control plane of Modal, killed in the middle and called again."""

import pytest

from tests.support.example_runs import SHORT, SMALL, finished, killed, tiny_model


@pytest.mark.parametrize("mode", ["single_node", "distributed"])
def test_a_mode_of_gsm8k_ends_with_the_same_bits_after_a_kill(plane, mode, tmp_path):
    tiny_model(tmp_path)
    env = {**plane.env, "PREFECT_API_URL": ""}
    options = ("--mode", mode, "--backend", "modal", *SHORT, *SMALL, "--max_steps", "4")
    undisturbed = finished(tmp_path, "gsm8k_grpo.py", *options, run_id=f"{mode}-one", env=env)
    killed(tmp_path, "gsm8k_grpo.py", *options, run_id=f"{mode}-two", step=1, env=env)
    resumed = finished(tmp_path, "gsm8k_grpo.py", *options, run_id=f"{mode}-two", env=env)
    assert resumed.manifest.attempts == 2
    assert resumed.manifest.final.weights_sha256 == undisturbed.manifest.final.weights_sha256
    assert resumed.metrics() == undisturbed.metrics()
