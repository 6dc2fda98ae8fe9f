"""More scripts for TRL's trainers that learn from rows, with one line changed."""

import re

import pytest

from tests.support.rows_scripts import both, differing, printed

__all__ = ["both"]

SCRIPTS = {"sft": ("sft", ()), "kto": ("kto", ())}


@pytest.mark.parametrize("output", SCRIPTS)
def test_the_weights_are_those_of_stock_trl(both, output):
    run, _, stock = both[output]
    assert differing(run, stock) == []


def test_a_run_is_told_by_its_algorithm_and_its_loss(both):
    run, said, _ = both["sft"]
    assert run.config.training.learning_rate == 2e-5 and run.info.num_steps == 9
    assert f"Flow run 'sft/{run.info.run_id}'" in said
    assert re.search(r"TrainingResult\(run_id=sft-.*step=9/9, loss=4\.\d+ -> 4\.\d+, sha", said)
    assert "reward" not in said and "grpo/" not in said


def test_the_loss_of_a_whole_run(both):
    _, said, stock = both["kto"]
    ours, theirs = (re.search(r"train_loss (\S+)", text) for text in (said, printed(stock)))
    assert float(ours[1]) == pytest.approx(float(theirs[1]))
