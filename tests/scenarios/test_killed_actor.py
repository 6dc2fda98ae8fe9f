"""An actor's process that is killed while it publishes weights."""

import multiprocessing
import signal

from tests.support.policy.fixtures import model_path, one_thread, uninterrupted
from tests.support.policy.rollouts import make_config
from tests.support.policy.runs import NUM_STEPS, SETUPS, make_run, train_until_killed

__all__ = ["model_path", "one_thread", "uninterrupted"]


def test_a_killed_process_leaves_a_run_that_another_finishes_to_the_bit(
    model_path, tmp_path, uninterrupted
):
    run = make_run(tmp_path, make_config(**SETUPS["lora-accumulated"]), model_path)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=train_until_killed, args=(run, 2))
    process.start()
    process.join(timeout=120)
    assert process.exitcode == -signal.SIGKILL
    assert [path.name for path in run.store.path("weights").glob(".*")] != []
    actor = run.actor()
    assert actor.prepare(step=3).step == 3
    assert [path.name for path in run.store.path("weights").glob(".*")] == []
    run.train(actor, [3, 4])
    assert run.state_digests(actor, NUM_STEPS) == uninterrupted("lora-accumulated")
