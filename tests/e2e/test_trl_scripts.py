"""Scripts for TRL, with two lines changed: the import, and the name of the class."""

from tests.support.ported_scripts import LORA, adapted, ran, updates

__all__ = ["ran"]


def test_the_quick_start(ran):
    run, said, _ = ran("quickstart", "quickstart-GRPO")
    training = run.config.training
    assert (training.num_generations, training.learning_rate, updates(run)) == (8, 1e-6, 2)
    assert max(row["completions/max_length"] for row in run.metrics()) <= 8
    assert "logging_steps changes nothing" in said


def test_a_lora_script_with_the_command_lines_adapter(ran):
    run, _, _ = ran("gspo", "lora", *LORA)
    lora = run.config.training.lora
    assert run.config.training.use_lora and (lora.r, lora.alpha, updates(run)) == (4, 8, 4)
    assert adapted(run) == {"q_proj", "v_proj"}
