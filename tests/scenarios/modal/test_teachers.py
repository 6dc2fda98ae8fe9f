"""A student on Modal whose teacher is in a container of its own, on a GPU of another kind than the
actor's."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from mortal_steps.orchestration.open_run import open_run
from mortal_steps.places.modal.meter import CORE, DOLLARS_PER_SECOND, GIBIBYTE
from mortal_steps.rollout.engines.table import VLLM_PYTHON as PYTHON_OF_IMAGE
from mortal_steps.runs.run import find_run
from mortal_steps.types import RewardedShard
from tests.support import bare_flow
from tests.support.chaos.comparison import digests
from tests.support.chaos.processes import hosts_of, kill, started_by
from tests.support.chaos.project import VARIANTS, write_teacher
from tests.support.modal.bare_run import drive
from tests.support.modal.fire import ACTOR, Fire
from tests.support.modal.project import (
    MORTAL,
    ON_MODAL,
    SHORT,
    STEPS,
    at,
    project,
)
from tests.support.paths import VLLM_PYTHON

TEACHER, IN_VLLM = "RewardWorker.*", "VllmRewardWorker.*"
TAUGHT = (*VARIANTS["opd"], "training.num_iterations=1", "rewards.dry_run=false")
APART = (
    "compute.modal.rewards=modal",
    "compute.modal.reward_gpu=L4",
    "compute.modal.reward_memory_mb=2048",
)
THERE = ("whole", "killed")


def test_a_student_has_the_bits_of_one_here_after_its_teacher_its_actor_and_its_flow_were_killed(
    plane, tmp_path
):
    write_teacher(tmp_path / "teacher")
    with bare_flow.bare_in(tmp_path):
        here = bare_flow.go_on(project(tmp_path, "here", *TAUGHT))
        there = [open_run(project(tmp_path, name, *ON_MODAL, *APART, *TAUGHT)) for name in THERE]
        asyncio.run(drive(there[0]))
    assert_paid_for(there[0])
    shutil.rmtree(tmp_path / "teacher")  # the Volume has it
    fire = Fire(plane, tmp_path, "killed", *APART, *TAUGHT)
    fire.strike(TEACHER, "reward/1", plane.kill)
    assert fire.strike(ACTOR, "taking step 2", plane.kill)
    fire.wait_while(ACTOR, "taking step 3")
    fire.kill_flow()
    fire.start()
    fire.finish()
    expected = digests(here.store.root, STEPS)
    for run_id in THERE:
        assert digests(fetch(plane, tmp_path, run_id).store.root, STEPS) == expected


@pytest.mark.vllm
@pytest.mark.skipif(
    not VLLM_PYTHON.exists(), reason=f"no {VLLM_PYTHON}; `make vllm-env` builds one"
)
def test_a_student_has_the_bits_of_one_here_after_its_teacher_in_vllm_was_killed_three_times(
    plane, tmp_path
):
    """The teacher's container has both environments. A Secret says which interpreter has vLLM, as
    the image does on Modal."""
    import modal  # it reads where Modal is once, when it is imported

    modal.Secret.objects.create("both", {PYTHON_OF_IMAGE: str(VLLM_PYTHON)})
    write_teacher(tmp_path / "teacher")
    teacher = "algorithm.teachers.main={name_or_path='teacher', engine='vllm'}"
    short = (*TAUGHT, *SHORT, teacher)
    with bare_flow.bare_in(tmp_path):
        mine = f"compute.local.rollout.python={VLLM_PYTHON}"
        here = bare_flow.go_on(project(tmp_path, "here", *short, mine))
        theirs = (*APART, *short, "compute.modal.secrets=['both']")
        open_run(project(tmp_path, "killed", *ON_MODAL, *theirs))
    fire = Fire(plane, tmp_path, "killed", *theirs)
    fire.strike(IN_VLLM, "reward/0", plane.kill)  # its first call, in which vLLM starts
    kill_engine(plane, fire.wait_while(IN_VLLM, "reward/1"))
    fire.strike(IN_VLLM, "reward/2", plane.kill)
    fire.finish()
    run = fetch(plane, tmp_path, "killed")
    assert digests(run.store.root, STEPS) == digests(here.store.root, STEPS)
    assert all(words(run)) and words(run) == words(here)
    containers = plane.events("container_started", function=IN_VLLM)
    assert [each["gpu"] for each in containers] == ["L4"] * 3


def assert_paid_for(run):
    """The teacher's container has its own price in the estimate."""
    rows = [json.loads(row) for row in run.store.path("costs.jsonl").read_text().splitlines()]
    mine = [row for row in rows if row["role"] == "reward"]
    rate = DOLLARS_PER_SECOND["L4"] + CORE + 2 * GIBIBYTE
    assert {row["kind"] for row in mine} >= {"useful", "idle"}
    for row in mine:
        assert row["dollars"] == pytest.approx(row["seconds"] * rate)
    assert len({row["container"] for row in rows}) == 3


def kill_engine(plane, task):
    """SIGKILL to the process in a container that vLLM is in."""
    (container,) = plane.events("container_started", task=task)
    engine = hosts_below(container["pid"])[0]
    assert str(VLLM_PYTHON).encode() in Path(f"/proc/{engine}/cmdline").read_bytes()
    assert kill(engine)


def hosts_below(pid):
    further = [host for child in started_by(pid) for host in hosts_below(child)]
    return [*hosts_of(pid), *further]


def words(run):
    """What the teacher said, as the run's records of training have it."""
    files = sorted(run.store.root.glob("steps/*/rewards-*.parquet"))
    names = [str(file.relative_to(run.store.root)) for file in files]
    return [list(run.store.find_record(name, RewardedShard)[1].teacher_logprobs) for name in names]


def fetch(plane, folder, run_id):
    plane.run(*MORTAL, "fetch", run_id, "--runs-dir=fetched", "--all", **at(folder))
    return find_run(folder / "fetched", run_id)
