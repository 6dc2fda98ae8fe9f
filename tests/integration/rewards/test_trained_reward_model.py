"""A reward model that was trained on pairs scores for a run as it did when it was trained."""

import pytest
import torch

from mortal_steps.rewards.kinds.model import ModelTerm
from mortal_steps.rewards.reward_model import RewardModel
from tests.support.policy.fixtures import model_path, one_thread
from tests.support.policy.rows import Stepping, make_config, preferences

__all__ = ["model_path", "one_thread"]


def test_it_is_served_with_the_score_that_it_has_as_a_trained_model(model_path, tmp_path):
    run = Stepping(make_config(model_path, "reward", max_steps=3), model_path, tmp_path)
    rows = preferences(12)
    run.prepare(rows)
    stepper, *_ = run.train()
    stepper.save_final(tmp_path / "final")
    texts = [row["prompt"] + row["chosen"] for row in rows]

    trainer, tokenizer = stepper.trainer, stepper.tokenizer
    trainer.model.eval()
    expected = []
    with torch.no_grad():
        for text in texts:
            ids = tokenizer(text + tokenizer.eos_token, return_tensors="pt")
            expected.append(trainer.model(**ids).logits.item())

    term = ModelTerm(model=str(tmp_path / "final"), append_eos=True, batch_size=1)
    columns = {
        "prompts": [row["prompt"] for row in rows],
        "completions": [row["chosen"] for row in rows],
    }
    assert RewardModel(term)(**columns) == expected
    without = RewardModel(term.model_copy(update={"append_eos": False}))(**columns)
    assert without != pytest.approx(expected)
