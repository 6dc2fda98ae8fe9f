"""Ranks that are killed or stopped: all end together, and the next actor comes to the same bits."""

import os
import signal
import time

import pytest

from mortal_steps.store.files import digest_file
from tests.support.policy.ranks import begin_mortal, followers_of, mortal_on_ranks
from tests.support.policy.rollouts import make_config

NUM_STEPS = 6
ENDED_S = 2.0


@pytest.fixture(scope="module")
def config():
    return make_config(ranks=2, rank_timeout_s=6, **{"num_iterations": 2, "use_lora": True})


@pytest.fixture(scope="module")
def undisturbed(model_path, config, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    mortal_on_ranks(config, model_path, folder, NUM_STEPS)
    return digests(folder)


def digests(folder):
    """Of the state after the last step, and of what is recorded of each step."""
    state = max((folder / "run" / "checkpoints").iterdir())
    results = (folder / "run" / "steps").glob("*/result.json")
    files = [*state.iterdir(), *results]
    return {str(file.relative_to(folder)): digest_file(file) for file in files}


@pytest.mark.parametrize(
    ("victim", "sign"),
    [("follower", signal.SIGKILL), ("leader", signal.SIGKILL), ("follower", signal.SIGSTOP)],
)
def test_all_end_with_one_and_begin_anew(undisturbed, model_path, config, tmp_path, victim, sign):
    actor = begin_mortal(config, model_path, tmp_path, NUM_STEPS)
    while not (tmp_path / "run" / "steps" / "000002" / "result.json").exists():
        assert actor.exitcode is None
        time.sleep(0.005)
    (follower,) = followers_of(actor.pid)
    os.kill(follower if victim == "follower" else actor.pid, sign)
    actor.join(60)
    assert actor.exitcode != 0, "it ended before it was struck"
    ended = time.monotonic()
    while os.path.exists(f"/proc/{follower}"):
        assert time.monotonic() < ended + ENDED_S
        time.sleep(0.01)
    done = len(list((tmp_path / "run" / "steps").glob("*/result.json")))
    again = begin_mortal(config, model_path, tmp_path, NUM_STEPS, first=done)
    again.join()
    assert again.exitcode == 0
    assert digests(tmp_path) == undisturbed
