"""Training on rows of a dataset on several ranks: the bits of stock TRL on as many, and of a run
that lost one of them. `scenarios/test_ranks.py` has the other algorithms, and
`make bench-parity ALGORITHM=sft RANKS=2` draws others."""

import pytest

from mortal_steps.errors import DataError
from tests.support.parity.rows_on_ranks import check_ranks_of
from tests.support.policy.rows import Stepping, make_config, texts
from tests.support.refused import refused


@pytest.mark.parametrize("kind", ["sft", "reward"])
def test_ranks_have_the_bits_of_stock_trl_and_survive_the_loss_of_one(kind, tmp_path):
    check_ranks_of(kind, tmp_path / "case")


def test_rows_that_make_no_micro_batch_of_each_rank_are_refused(model_path, tmp_path):
    options = {"batch_size": 8, "ranks": 2, "trl": {"dataloader_drop_last": True}}
    run = Stepping(make_config(model_path, **options), model_path, tmp_path)
    with refused(DataError, "dataloader_drop_last", "which are 7", "training.batch_size"):
        run.prepare(texts(7))
