"""More scripts for TRL, with two lines changed."""

import re

from tests.support.ported_scripts import GSPO, ROWS, adapted, ran, updates

__all__ = ["ran"]

SCRIPTS = {"gspo": ("gspo", GSPO), "rloo": ("rloo", ()), "notebook-GRPO": ("notebook", ())}


def test_gspo_with_its_command_line(ran):
    run, said, folder = ran["gspo"]
    training = run.config.training
    assert training.trl["importance_sampling_level"] == "sequence"
    assert (training.batch_size, training.max_steps, updates(run)) == (2, 2, 4)
    assert run.config.evaluation.eval_steps == 1
    assert (folder / "model.safetensors").exists()
    assert "log_completions changes nothing" in said


def test_rloo_with_an_adapter_on_the_usual_layers(ran):
    run, _, _ = ran["rloo"]
    assert run.config.algorithm.type == "rloo"
    assert (run.config.training.beta, updates(run)) == (0.05, 4)
    assert adapted(run) == {"q_proj", "v_proj"}


def test_the_cells_of_a_notebook(ran):
    run, said, folder = ran["notebook-GRPO"]
    assert len(run.metrics()) == len(ROWS) / 2
    assert re.search(r"\d+\.\d seconds used for training", said)
    assert adapted(run) == {"q_proj", "v_proj"}
    assert (folder / "model.safetensors").exists()  # the adapter merged in
