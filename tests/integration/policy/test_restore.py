"""What is restored from a checkpoint is what was saved, or an error says that it is not."""

import contextlib
import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from mortal_steps.errors import CheckpointMismatchError
from mortal_steps.plan.parts import Plan
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.on_disk.checkpoints import STATE_FILE
from tests.support.policy.rollouts import make_batch, make_config

OPTIMIZERS = ["adamw_torch", "adamw_torch_fused", "adafactor", "sgd", "adagrad", "rmsprop"]
"""Those of transformers' that need no further package."""


@pytest.mark.parametrize("part", ["weights", "optimizer", "schedule"])
def test_a_checkpoint_that_restores_to_something_else_is_refused(run, actor, part):
    run.train(actor, [0])
    actor.checkpoint(step=1, best_score=None)
    with recommitted(run, "checkpoints/step-1") as folder:
        state = json.loads((folder / STATE_FILE).read_text())
        state["digests"][part] = "0" * 32
        (folder / STATE_FILE).write_text(json.dumps(state))
    with pytest.raises(
        CheckpointMismatchError, match=rf"step-1 restores to .*: its {part} differs"
    ):
        run.actor().prepare(step=1)


def test_a_tensor_that_a_checkpoint_lacks_is_named(run, actor):
    run.train(actor, [0])
    actor.checkpoint(step=1, best_score=None)
    with recommitted(run, "checkpoints/step-1") as folder:
        tensors = load_file(folder / "model.safetensors")
        del tensors["model.norm.weight"]
        save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointMismatchError, match=r"does not hold model\.norm\.weight"):
        run.actor().prepare(step=1)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_is_restored_in_its_own_types(model_path, tmp_path, optimizer, dtype):
    config = make_config(model={"dtype": dtype}, trl={"optim": optimizer})

    def stepper():
        return GRPO().stepper(
            Plan(config).trainer, model_path=model_path, num_steps=3, output_dir=tmp_path
        )

    first, second = stepper(), stepper()
    first.begin()
    first.train_step(make_batch(config, 0), seed=0)
    folder = tmp_path / "state"
    folder.mkdir()
    first.save_state(folder)
    second.begin(folder)
    assert second.digests() == first.digests()
    for one in (first, second):
        one.train_step(make_batch(config, 1), seed=1)
    assert second.digests() == first.digests()
    assert torch.isfinite(next(second._trainer.model.parameters())).all()


@contextlib.contextmanager
def recommitted(run, path):
    """Return the folder's files in a new commit, to be changed."""
    files = {
        name: (run.store.path(path) / name).read_bytes() for name in run.store.folder_files(path)
    }
    with run.store.committing_folder(path) as folder:
        for name, content in files.items():
            (folder / name).write_bytes(content)
        yield folder
