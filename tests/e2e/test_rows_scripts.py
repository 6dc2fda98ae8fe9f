"""Scripts for TRL's trainers that learn from rows or a teacher, with one line changed: the import.
They train the same weights as stock TRL."""

import json
import re

import pytest

from tests.support.rows_scripts import both, differing, printed

__all__ = ["both"]

CHAT = (
    *("--model_name_or_path", "model", "--output_dir", "chat", "--bf16", "False", "--use_cpu"),
    *("--per_device_train_batch_size", "2", "--gradient_accumulation_steps", "2"),
    *("--num_train_epochs", "2", "--eval_strategy", "steps", "--eval_steps", "2"),
    *("--use_peft", "--lora_r", "4", "--lora_alpha", "8", "--lora_dropout", "0.1"),
    *("--neftune_noise_alpha", "5", "--learning_rate", "1e-3", "--report_to", "none"),
)
SCRIPTS = {
    "chat": ("chat", CHAT),
    "dpo": ("dpo", ()),
    "reward": ("reward", ()),
    "student": ("distillation", ()),
}
"""Each by its output folder, with its arguments."""


@pytest.mark.parametrize("output", SCRIPTS)
def test_the_weights_are_those_of_stock_trl(both, output):
    run, _, stock = both[output]
    assert differing(run, stock) == []


def test_a_command_line_an_adapter_and_evaluations(both):
    run, said, _ = both["chat"]
    evaluations = [json.loads(line) for line in run.store.path("evaluations.jsonl").open()]
    assert [row["step"] for row in evaluations] == [2, 4, 6]
    lora = run.config.training.lora
    assert (lora.r, lora.alpha, lora.dropout) == (4, 8, 0.1)
    assert "o held-out rows" in said and "use_cpu changes nothing" in said
    assert said.endswith("Training completed.\n")
    assert f"Flow run 'sft/{run.info.run_id}'" in said
    assert "reward" not in said and "grpo/" not in said


def test_metrics_at_the_end_of_a_script(both):
    run, said, stock = both["dpo"]
    ours = json.loads((run.store.root.parent / "eval_results.json").read_text())
    theirs = json.loads((stock / "eval_results.json").read_text())
    few, many = ours["eval_few_loss"], ours["eval_many_loss"]
    assert ours.pop("eval_loss") == (few + 4 * many) / 5
    assert ours == {name: theirs[name] for name in ours}
    assert "eval metrics\n" in said


def test_held_out_rows_are_judged_after_a_run_that_did_not(both):
    run, said, stock = both["reward"]
    assert run.config.evaluation.eval_steps == 0
    assert re.search(r"accuracy .*", said)[0] == re.search(r"accuracy .*", printed(stock))[0]


def test_a_student_samples_what_it_learns_on(both):
    run, said, _ = both["student"]
    assert run.config.algorithm.teacher_model.dtype == "auto"
    assert (run.info.num_steps, run.config.rollout.top_k) == (4, 1)
    assert all(row["loss"] > 0 and row["num_unscored"] == 4 for row in run.metrics())
    assert f"Flow run 'distillation/{run.info.run_id}'" in said
