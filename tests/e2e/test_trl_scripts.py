"""Scripts for TRL, with two lines changed: the import, and the name of the class."""

from mortal_steps.scores import reward_names
from mortal_steps.types import RewardedShard
from tests.support.ported_scripts import LORA, adapted, ran, updates

__all__ = ["ran"]

SCRIPTS = {
    "quickstart-GRPO": ("quickstart", ()),
    "lora": ("gspo", LORA),
    "agent-GRPO": ("agent", ()),
}
"""Each by its output folder, with its arguments."""


def test_the_quick_start(ran):
    run, said, _ = ran["quickstart-GRPO"]
    training = run.config.training
    assert (training.num_generations, training.learning_rate, updates(run)) == (8, 1e-6, 2)
    assert max(row["completions/max_length"] for row in run.metrics()) <= 8
    assert "logging_steps changes nothing" in said


def test_a_lora_script_with_the_command_lines_adapter(ran):
    run, _, _ = ran["lora"]
    lora = run.config.training.lora
    assert run.config.training.use_lora and (lora.r, lora.alpha, updates(run)) == (4, 8, 4)
    assert adapted(run) == {"q_proj", "v_proj"}


def test_environments_and_a_tool(ran):
    run, said, _ = ran["agent-GRPO"]
    environment = run.config.environment
    assert (environment.max_tool_calling_iterations, len(environment.tools)) == (2, 1)
    assert reward_names(run.config.rewards) == ("near", "Shop")
    assert "changes nothing" not in said
    scored = set()
    for path in sorted(run.store.root.glob("steps/*/rewards-*")):
        shard = run.store.find_record(str(path.relative_to(run.store.root)), RewardedShard)[1]
        scored |= {(row["near"], row["Shop"]) for group in shard.rewards for row in group}
    assert (None, None) in scored  # `Silent` has neither
    assert {near is None for near, _ in scored} == {True, False}
    assert all(own == 0.25 for near, own in scored if near is not None)
