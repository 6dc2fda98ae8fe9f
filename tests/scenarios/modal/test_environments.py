"""Environments in Sandboxes of a control plane of Modal, which are lost in mid-episode."""

import re
import shutil
from concurrent.futures import ThreadPoolExecutor

import modal
import pytest

from mortal_steps.places.modal.meter import container_rate, sandbox_rate
from mortal_steps.runs.costs import COSTS, read_costs
from mortal_steps.runs.run import find_run
from tests.support.modal.project import MORTAL, ON_MODAL, assert_same, at
from tests.support.paths import ROOT

AWAY = (*ON_MODAL, "compute.modal.environment.packages=['openai']", "environment.retries=4")
SETTINGS = (
    *("training.max_steps=3", "model.warm_start.steps=200"),
    *("evaluation.on_start=false", "evaluation.eval_steps=50"),
    *("training.gradient_accumulation_steps=1", "rollout.weight_sync=volume"),
    *("rollout.dtype=float32", "rollout.num_rollout_workers=1", "rollout.num_shards=1"),
    "compute.local.actor.threads=1",
)
KILLS = 3
KINDS = {
    "safe.py": 'factory = "examples/agent/slow.py:Safe"',
    "loop.py": 'type = "agent"\nagent = "examples/agent/slow.py:opens"',
}
"""What is said of the environment that is told by a file of the examples."""
ASKED = "the clerk is asked"


def train(plane, folder, run_id, *overrides):
    options = [part for each in (*SETTINGS, *overrides) for part in ("--set", each)]
    plane.run(*MORTAL, "train", "agent.toml", "--run-id", run_id, *options, **at(folder))
    if "compute.backend=modal" in overrides:
        plane.run(*MORTAL, "fetch", run_id, "--all", **at(folder))
    return find_run(folder / "runs", run_id)


@pytest.fixture(params=KINDS)
def folder(request, tmp_path):
    """A user's folder, in which the clerk takes a while and says where he is."""
    examples = tmp_path / "examples" / "agent"
    shutil.copytree(ROOT / "examples" / "agent", examples)
    text = (examples / request.param).read_text()
    slow = re.sub(r"(return|answer =) (self\.code if|code if)", r"\1 asked() or \2", text)
    assert slow != text
    (examples / "slow.py").write_text(
        f"""{slow}

def asked():
    import time
    print("{ASKED}", flush=True)
    time.sleep(0.2)
"""
    )
    config = (ROOT / "deployments" / "configs" / "agent.toml").read_text()
    said = config.replace('factory = "examples/agent/safe.py:Safe"', KINDS[request.param])
    assert said != config
    (tmp_path / "agent.toml").write_text(said)
    return tmp_path


def rollout_logs(plane, before):
    """Return the output of all but so many containers, where that of Sandboxes goes, too."""
    tasks = [each["task"] for each in plane.events("container_started")[before:]]
    return "".join(map(plane.log, tasks))


def running_sandbox(plane):
    ended = {each["sandbox"] for each in plane.events("sandbox_ended")}
    return [
        each["sandbox"] for each in plane.events("sandbox_started") if each["sandbox"] not in ended
    ]


def assert_sandboxes_count(plane, before, run):
    """Check that Sandboxes cost what those lived that were begun after the rollout worker was."""
    compute = run.config.compute
    workers = [e for e in plane.events("container_started")[before:] if e["gpu"]]
    ended = {each["sandbox"]: each["t"] for each in plane.events("sandbox_ended")}
    began = {each["sandbox"]: each["t"] for each in plane.events("sandbox_started")}
    lived = sum(ended[each] - at for each, at in began.items() if at > min(e["t"] for e in workers))
    rows = [row for row in read_costs(run.store.path(COSTS)) if row["role"] == "rollout"]
    containers = container_rate(compute, "rollout") * sum(row["seconds"] for row in rows)
    counted = sum(row["dollars"] for row in rows) - containers
    cost = sandbox_rate(compute, "rollout") * lived
    assert 0.9 * cost < counted < 1.5 * cost  # a lost one is away until the next is there


def test_a_run_ends_with_the_bits_of_here_though_its_sandboxes_are_lost_in_mid_episode(
    plane, folder
):
    here = train(plane, folder, "here")
    before, kills, heard = len(plane.events("container_started")), 0, 0
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(train, plane, folder, f"away-{folder.name[-1]}", *AWAY)

        def is_asked():
            return running.done() or rollout_logs(plane, before).count(ASKED) > heard

        while kills < KILLS and not running.done():
            plane.wait_until(is_asked, timeout_s=200)
            for sandbox in running_sandbox(plane):
                kills += 1
                modal.Sandbox.from_id(sandbox).terminate()
            heard = rollout_logs(plane, before).count(ASKED)
        away = running.result()
    assert kills == KILLS
    assert_same(away, here)
    assert any(row["episodes/turns"] > 1 for row in away.metrics())
    assert all(row["reward_std"] for row in away.metrics()), "nothing was learned from"
    assert "it is asked again in a new process" in rollout_logs(plane, before)
    assert not running_sandbox(plane)
    assert_sandboxes_count(plane, before, away)
