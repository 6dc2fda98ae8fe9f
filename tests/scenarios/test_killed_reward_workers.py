"""Two reward workers, each with a host for all functions and two of one function alone, and each of
them killed in mid-step: the run ends with the same bits as with one worker and nothing killed."""

import time

import pytest

from tests.support.chaos.comparison import digests
from tests.support.chaos.processes import hosts_of, kill, process_ids
from tests.support.command import Mortal, wait_for_step
from tests.support.deployments import PATIENCE_S
from tests.support.project import CONFIG, REWARDS, write_project
from tests.support.undisturbed import begun, undisturbed

STEPS = 4
KILLED_AT = (1, 2)
"""After so many steps."""
SETTINGS = [f"training.max_steps={STEPS}"]
SEVERAL = [*SETTINGS, "rewards.num_reward_workers=2"]

SLOW = """

import time


def slow(completions, **kwargs):
    time.sleep(0.5)
    return [len(set(text)) / 10 for text in completions]
"""

TERMS = """
[[rewards.terms]]
function = "rewards.py:matches"

[[rewards.terms]]
function = "rewards.py:slow"
calls = "problem"
processes = 2
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("several")
    write_project(folder)
    (folder / "rewards.py").write_text(REWARDS + SLOW)
    terms = CONFIG.replace('[rewards]\nfunctions = ["rewards.py:matches"]', TERMS)
    (folder / "tiny.toml").write_text(terms)
    return folder


@pytest.fixture(scope="module")
def expected(folder):
    """Digests of the run with one worker that nothing happens to."""
    run = undisturbed(folder, [*SETTINGS, "rewards.num_reward_workers=1"])
    return digests(run.store.root, STEPS)


def victims(flow, who):
    """The second worker, or a host of its own."""
    workers = process_ids(flow, "reward-1")
    if who == "worker":
        return workers
    return [host for worker in workers for host in hosts_of(worker)][-1:]


def kill_one(flow, who):
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        found = victims(flow, who)
        if found and kill(found[0]):
            return
        time.sleep(0.005)
    pytest.fail(f"there is no {who} to kill")


@pytest.mark.parametrize("who", ["worker", "host"])
def test_the_same_bits(server, folder, expected, who):
    mortal = Mortal(folder, server.api_url)
    run_id = f"without-a-{who}"
    begun(folder, SEVERAL, run_id)
    process = mortal.start("resume", run_id)
    for step in KILLED_AT:
        wait_for_step(mortal, run_id, step, process)
        kill_one(process.pid, who)
    output, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, output
    assert digests(folder / "runs" / run_id, STEPS) == expected
