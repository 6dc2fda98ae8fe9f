"""A checkpoint that becomes a model folder has the bits that the actor published."""

import pytest

from mortal_steps.policy.weights import path_of, weights_digest
from mortal_steps.policy.exporting import Export, export_model
from tests.support.policy.fixtures import model_path, one_thread
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import SETUPS, make_run

__all__ = ["model_path", "one_thread"]


@pytest.mark.parametrize("setup", ["full", "lora"])
def test_a_checkpoint_is_exported_to_the_weights_published_after_its_step(
    setup, model_path, tmp_path
):
    run = make_run(tmp_path / "run", make_config(**SETUPS[setup]), model_path)
    actor = run.actor()
    actor.prepare(step=0)
    run.train(actor, [0])
    saved = run.store.path(actor.checkpoint(step=1, best_score=None).path)
    export = Export(
        base=model_path if setup == "lora" else None,
        dtype=run.config.model.dtype,
        published_names=False,
        trust_remote_code=False,
    )
    export_model(saved, tmp_path / "exported", export)
    published = run.store.path(path_of(1))
    assert weights_digest(tmp_path / "exported") == weights_digest(published)
    assert weights_digest(published) != weights_digest(run.store.path(path_of(0)))
    same = (tmp_path / "exported" / "config.json").read_text()
    assert same == (published / "config.json").read_text()
