"""A checkpoint that becomes a model folder has the bits that the actor published."""

import pytest

from mortal_steps.policy.model_files.exporting import Export, export_model
from mortal_steps.policy.on_disk.weights import path_of, weights_digest
from mortal_steps.rollout.engines.model_files import is_adapter
from tests.support.policy.fixtures import model_path, one_thread
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import ADAPTER, SETUPS, make_run

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
        trust_remote_code=False,
    )
    export_model(saved, tmp_path / "exported", export)
    published = run.store.path(path_of(1))
    assert weights_digest(tmp_path / "exported") == weights_digest(published)
    assert weights_digest(published) != weights_digest(run.store.path(path_of(0)))
    if setup == "lora":
        assert_same_of_an_adapter_that_travelled_alone(published, export, model_path, tmp_path)
    same = (tmp_path / "exported" / "config.json").read_text()
    assert same == (published / "config.json").read_text()


def assert_same_of_an_adapter_that_travelled_alone(merged, export, model_path, tmp_path):
    run = make_run(tmp_path / "alone", make_config(**ADAPTER), model_path)
    actor = run.actor()
    actor.prepare(step=0)
    run.train(actor, [0])
    assert is_adapter(run.store.path(path_of(1)))
    export_model(run.store.path(path_of(1)), tmp_path / "merged-later", export)
    assert weights_digest(tmp_path / "merged-later") == weights_digest(merged)
