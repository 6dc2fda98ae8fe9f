"""What is checked of ranks: the bits of stock TRL, and that all end with one."""

import os
import signal
import time

import torch
from safetensors.torch import load_file, save

from mortal_steps.rollout.weight_sync.canary import published_in
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
from mortal_steps.store.files import digest_file
from tests.support.policy.parity import differ
from tests.support.policy.ranks import (
    PATIENCE_S,
    begin_mortal,
    followers_of,
    mortal_on_ranks,
    stock_on_ranks,
)
from tests.support.policy.rollouts import make_config

ACCUMULATED = {"gradient_accumulation_steps": 2, "num_iterations": 2, "beta": 0.05}
LORA = {"use_lora": True, "lora": {"dropout": 0.2, "publish": "adapter"}}
SHARDED = {"ranks": 2, "sharding": "full"}
NUM_STEPS = 6
ENDED_S = 2.0
KILL, STOP = signal.SIGKILL, signal.SIGSTOP


def check_parity_on_ranks(model_path, folder, num_steps=2, *, forks=False, **training):
    """The weights and metrics of stock TRL on as many ranks."""
    config = make_config(**training)
    theirs = stock_on_ranks(config, model_path, folder / "stock", num_steps)
    ours = mortal_on_ranks(config, model_path, folder / "mortal", num_steps, forks=forks)
    updates = config.training.optimizer_steps_per_batch
    assert len(theirs.weights) == num_steps * updates
    assert differ(theirs.weights[0], theirs.weights[-1]), "nothing was trained"
    if config.training.sharding == "full":
        check_files_are_those_of_one_rank(folder / "mortal" / "run")
        # Ours are looked at after each step.
        theirs.weights = theirs.weights[updates - 1 :: updates]
    for one, other in zip(theirs.weights, ours.weights, strict=True):
        assert one.keys() == other.keys()
        assert [name for name in one if not torch.equal(one[name], other[name])] == []
    assert ours.metrics == theirs.metrics


def check_files_are_those_of_one_rank(run):
    """Each model file has the bytes that the library writes of the same tensors, and the probe of
    each version the digests of its tensors."""
    files = [*run.glob("weights/*/*.safetensors"), *run.glob("checkpoints/*/*.safetensors")]
    assert len(files) > 2
    for file in files:
        tensors = load_file(file)
        assert save(tensors, metadata={"format": "pt"}) == file.read_bytes()
        if file.parent.parent.name == "weights":
            assert published_in(file.parent).digests == tensor_digests(tensors.items())
    for file in run.glob("checkpoints/*/optimizer.pt"):
        state = torch.load(file, weights_only=True)["state"]
        squares = [each.get("exp_avg_sq", each.get("sum")) for each in state.values()]
        assert squares and all(each.all() for each in squares)


def undisturbed_digests(config, model_path, folder, *, forks=False):
    """Of a run that nothing happens to."""
    mortal_on_ranks(config, model_path, folder, NUM_STEPS, forks=forks)
    return _digests(folder)


AFTER_STEP = "steps/000002/result.json"
PUBLISHING = "weights/.v3.*.partial/model.safetensors"
SAVING = "checkpoints/.step-4.*.partial/*"


def check_all_end_with(
    victim, sign, config, model_path, folder, expected, when=AFTER_STEP, *, forks=False
):
    """Strike a rank once there is such a file; the next actor comes to the same bits."""
    actor = begin_mortal(config, model_path, folder, NUM_STEPS, forks=forks)
    while not any((folder / "run").glob(when)):
        assert actor.exitcode is None
        time.sleep(0.0005)
    (follower,) = followers_of(actor.pid)
    os.kill(follower if victim == "follower" else actor.pid, sign)
    actor.join(PATIENCE_S)  # ranks that write are waited for longer than others
    assert actor.exitcode is not None, "it waits for a rank that is gone"
    assert actor.exitcode != 0, "it ended before it was struck"
    ended = time.monotonic()
    while os.path.exists(f"/proc/{follower}"):
        assert time.monotonic() < ended + ENDED_S
        time.sleep(0.01)
    done = len(list((folder / "run" / "steps").glob("*/result.json")))
    again = begin_mortal(config, model_path, folder, NUM_STEPS, first=done, forks=forks)
    again.join()
    assert again.exitcode == 0
    assert _digests(folder) == expected


def _digests(folder):
    """Of the state after the last step, and of what is recorded of each step."""
    state = max((folder / "run" / "checkpoints").iterdir())
    results = (folder / "run" / "steps").glob("*/result.json")
    files = [*state.iterdir(), *results]
    return {str(file.relative_to(folder)): digest_file(file) for file in files}
