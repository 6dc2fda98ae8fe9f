"""A fork goes on from its parent's checkpoint: the same bits with the same settings, its own
settings from its first step on, and the parent is left as it is."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest
import torch
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import ConfigError, CorruptFileError, RewardError, StoreError
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.forking.fork import fork_run
from mortal_steps.policy.on_disk import checkpoints
from mortal_steps.policy.on_disk.weights import weights_digest
from mortal_steps.report.summary import summarize
from mortal_steps.runs.logs import USAGE
from mortal_steps.runs.run import Run, find_run
from mortal_steps.runs.verify import check_run
from mortal_steps.store.files import digest_file
from tests.support.bare_flow import InProcess, Killed, go_on, project_config
from tests.support.commits import in_a_process_killed_at, leftovers
from tests.support.damage import flip_a_bit
from tests.support.verified import damaged_files, same_bits

NEWER = {"checkpoints.keep_last": 9, "training.num_generations": 8}


@pytest.fixture(scope="module")
def parent(project, patch):
    """A run of six steps, with checkpoints at 2, 4 and 6."""
    return trained(project, patch, "parent", {})


@pytest.fixture(scope="module")
def stale(project, patch):
    """The same with completions sampled one step ahead, and weights synced every other step."""
    ahead = {"rollout.staleness": 1, "rollout.sync_weights_every": 2}
    return trained(project, patch, "stale", {**ahead, "checkpoints.save_steps": 3})


def trained(project, patch, run_id, overrides):
    config = project_config(project, **NEWER, **overrides)
    place = {"run_id": run_id, "runs_dir": str(project / "runs")}
    return go_on(config.model_copy(update=place))


def content_of(folder):
    return {path: digest_file(path) for path in folder.rglob("*") if path.is_file()}


def is_whole(run):
    check = check_run(run.store.root.parent, run.info.run_id)
    damaged = [file for file in check.files if file.damage]
    assert check.num_linked == check.num_steps - run.info.first_step
    return damaged == []


def same_file(one, other, name):
    return os.path.samefile(one.store.path(name), other.store.path(name))


# --- the same settings ----------------------------------------------------------------------------


def test_without_changes_it_ends_with_its_parents_bits(parent, patch):
    before = content_of(parent.store.root)
    parent.acquire()  # it is in use by somebody, which is nobody's business
    fork = fork_run(parent, at_step=2)
    parent.release()
    assert re.fullmatch(r"parent-fork-[0-9a-f]{6}", fork.info.run_id)
    assert (fork.manifest.step, fork.info.first_step, fork.status()) == (2, 2, "created")
    assert len(fork.metrics()) == 2
    assert is_whole(fork)
    assert same_file(fork, parent, "checkpoints/step-2/optimizer.pt")
    assert not fork.store.path("steps").exists()
    fork = go_on(fork.config)
    same_bits(fork.store.root, parent)
    assert is_whole(fork)
    done = [row["stage"] for row in fork.timings()]
    assert done.count("train_step") == 6 and done.count("reward") == 12
    assert summarize(fork).timings["train_step"].calls == 4, "its parent's time is not its own"
    used = fork.logs.read(USAGE)
    assert [row["step"] for row in used] == [1, 2, 3, 4, 5, 6]
    assert used[:2] == parent.logs.read(USAGE)[:2]
    assert used[1]["driven_s"] < used[2]["driven_s"], "it goes on from what its parent had used"
    assert used[5]["driven_s"] == used[1]["driven_s"] + fork.manifest.busy_s
    assert content_of(parent.store.root) == before


def test_with_staleness_too(stale, patch):
    fork = fork_run(stale, at_step=3)
    # Step 3 is sampled with version 2, step 4 with 2 and not yet with 4.
    assert {path.name for path in fork.store.path("weights").iterdir()} == {"v2"}
    fork = go_on(fork.config)
    same_bits(fork.store.root, stale)
    assert is_whole(fork)


def test_a_fork_that_is_killed_and_damaged_and_a_fork_of_it(parent, patch):
    changes = ["training.learning_rate=3e-3", "checkpoints.background=false"]
    child = fork_run(parent, changes, at_step=2, run_id="child")
    with pytest.raises(Killed):
        go_on(child.config, killed_after=4)
    fork = go_on(fork_run(child, at_step=4).config)
    assert is_whole(fork)
    flip_a_bit(child.store.path("checkpoints/step-4/model.safetensors"))
    child.store.path("manifest.json").unlink()
    child = go_on(child.config)  # back to its first checkpoint, which its parent wrote
    same_bits(fork.store.root, child)
    assert weights_digest(child.store.path("final")) != weights_digest(parent.store.path("final"))


# --- other settings -------------------------------------------------------------------------------


def test_an_optimizers_settings_are_the_forks_from_its_first_step(parent, patch):
    changes = ["learning_rate=1e-2", "num_iterations=2", "trl.adam_beta1=0.5"]
    fork = fork_run(parent, [f"training.{change}" for change in changes], at_step=2)
    fork = go_on(fork.config)
    rows = fork.metrics()
    for name in ("learning_rate", "optimizer_steps"):
        assert [row[name] for row in rows[:2]] == [row[name] for row in parent.metrics()[:2]]
    # As in a run that had these settings from the start: two updates a step, of which TRL logs the
    # second one's rate, on the way from 1e-2 to 0 in 12.
    assert [row["optimizer_steps"] for row in rows[2:]] == [6, 8, 10, 12]
    assert [row["learning_rate"] for row in rows[2:]] == [
        1e-2 * (updates / 12) for updates in (7, 5, 3, 1)
    ]
    optimizer = torch.load(fork.store.path("checkpoints/step-4/optimizer.pt"))
    assert {group["betas"] for group in optimizer["param_groups"]} == {(0.5, 0.999)}
    updates = {float(state["step"]) for state in optimizer["state"].values()}
    assert updates == {2 + 4}, "the moments go on"
    assert is_whole(fork)


def test_a_run_that_has_ended_is_made_longer(parent, patch):
    fork = fork_run(parent, ["training.max_steps=8"])
    assert (fork.info.first_step, fork.info.num_steps) == (6, 8)
    fork = go_on(fork.config)
    assert [row["learning_rate"] for row in fork.metrics()[6:]] == [1e-3 * (2 / 8), 1e-3 * (1 / 8)]
    assert fork.manifest.status == "completed" and is_whole(fork)


def test_other_rewards_temperature_and_kl(parent, project, patch):
    (project / "brevity.py").write_text(
        "def short(completions, **kwargs):\n    return [-len(text) for text in completions]\n"
    )
    changes = ['rewards.functions=["brevity.py:short"]', "rollout.temperature=0.7"]
    fork = fork_run(parent, [*changes, "training.beta=0.1"], at_step=2)
    assert fork.manifest.best_step is None, "its parent's rewards are no measure"
    fork = go_on(fork.config)
    rows = fork.metrics()
    assert all(row["reward"] < 0 and "kl" in row for row in rows[2:])
    assert [row["reward"] for row in rows[:2]] == [row["reward"] for row in parent.metrics()[:2]]
    assert is_whole(fork)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("model.new.hidden_size=64", ["model.new.hidden_size", "32", "64", "parent"]),
        ("training.use_lora=true", ["training.use_lora", "False", "True"]),
        ("model.dtype=bfloat16", ["model.dtype", "'float32'", "'bfloat16'"]),
        ("training.trl.optim=sgd", ["training.trl.optim", "None", "'sgd'"]),
        ("seed=8", ["seed", "7", "8"]),
        ("runs_dir=elsewhere", ["runs_dir"]),
        ("training.lerning_rate=1", ["did you mean training.learning_rate?"]),
        ("training.max_steps=2", ["training.max_steps = 2", "begin at step 2"]),
    ],
)
def test_what_the_checkpoint_cannot_follow_is_named_and_nothing_is_written(parent, change, told):
    before = content_of(parent.store.root.parent)
    with pytest.raises(ConfigError) as refused:
        fork_run(parent, [change], at_step=2)
    assert all(part in str(refused.value) for part in told), refused.value
    assert content_of(parent.store.root.parent) == before


# --- what is not there ----------------------------------------------------------------------------


def copy_of(run, tmp_path):
    root = shutil.copytree(run.store.root, tmp_path / "runs" / run.info.run_id)
    return find_run(root.parent, root.name)


def test_a_checkpoint_that_is_not_there_or_damaged_is_told_with_those_that_are(parent, tmp_path):
    parent = copy_of(parent, tmp_path)
    flip_a_bit(parent.store.path("checkpoints/step-6/optimizer.pt"))
    for step, reason in (
        (3, "has no checkpoint of step 3"),
        (0, "nothing to fork at step 0: start a new run with `mortal train`"),
        (6, r"damaged checkpoint of step 6 \(.*checkpoints/step-6/optimizer.pt is damaged"),
    ):
        with pytest.raises(StoreError, match=f"{reason}.*; whole checkpoints there: 2, 4$"):
            fork_run(parent, at_step=step)
    assert fork_run(parent).info.first_step == 4
    shutil.rmtree(parent.store.path("checkpoints"))
    with pytest.raises(StoreError, match=r"no whole checkpoint.*every 2 steps"):
        fork_run(parent)


def test_a_parent_may_remove_the_checkpoint_meanwhile(parent, tmp_path, monkeypatch):
    parent = copy_of(parent, tmp_path)
    check = preflight.check

    def check_slowly(config, *asked, **told):
        shutil.rmtree(parent.store.path("checkpoints/step-2"))
        return check(config, *asked, **told)

    monkeypatch.setattr(preflight, "check", check_slowly)
    fork = fork_run(parent, at_step=2)
    assert checkpoints.find(fork.store, 2) == fork.manifest.checkpoints[0]


def test_older_weights_that_are_gone_are_told_with_a_way_out(stale, tmp_path):
    stale = copy_of(stale, tmp_path)
    flip_a_bit(stale.store.path("weights/v2/model.safetensors"))
    with pytest.raises(
        StoreError, match=r"step 3 is sampled with the weights of step 2 .*any more"
    ):
        fork_run(stale, at_step=3)
    fork_run(stale, ["rollout.staleness=0", "rollout.sync_weights_every=1"], at_step=3)


def test_damaged_weights_that_only_a_longer_run_needs_are_named(stale, tmp_path, patch):
    shutil.copytree(stale.store.root.parent / ".models", tmp_path / "runs/.models")
    whole, stale = stale, copy_of(stale, tmp_path)
    root = stale.store.root
    path = root / "weights/v4/model.safetensors"
    flip_a_bit(path)
    assert damaged_files(root) == {path.resolve(): "passed over"}
    before = content_of(root)
    command = [sys.executable, "-m", "mortal", "resume", "stale", "--runs-dir", str(root.parent)]
    resumed = subprocess.run(command, capture_output=True, text=True)
    told = resumed.stdout + resumed.stderr
    assert (resumed.returncode, "is complete" in told) == (0, True), told
    assert content_of(root) == before
    with pytest.raises(StoreError, match=r"weights of step 4 .*any more; choose another --at-step"):
        fork_run(stale, ["training.max_steps=8"])
    same_bits(go_on(fork_run(stale, at_step=3).config).store.root, whole)
    shutil.rmtree(root / "final")
    assert damaged_files(root)[path.resolve()] == "will be made again"
    go_on(stale.config.model_copy(update={"runs_dir": str(root.parent)}))
    assert damaged_files(root) == {}
    assert go_on(fork_run(stale, ["training.max_steps=8"]).config).is_complete()


@pytest.mark.parametrize("lost", ["checkpoints/step-3/optimizer.pt", "weights/v2/probe.json"])
def test_a_fork_without_its_beginning_says_how_to_fork_again(stale, patch, lost):
    fork = fork_run(stale, ["training.beta=0.1"], at_step=3)
    path = fork.store.path(lost)
    flip_a_bit(path)
    assert damaged_files(fork.store.root) == {path.resolve(): "cannot be recovered"}
    with pytest.raises(CorruptFileError, match=f"{path.parent} .*`mortal fork stale --at-step 3`"):
        go_on(fork.config)
    assert damaged_files(stale.store.root) == {}


@pytest.mark.parametrize("at", ["the newest checkpoint is noted", "an evaluation fails for good"])
def test_of_one_checkpoint_that_is_kept_the_one_before_stays_until_the_run_stands_there(
    parent, patch, at
):
    """A fork has nothing before its first checkpoint, and could go on from nowhere."""
    settings = ["checkpoints.keep_last=1", "checkpoints.keep_best=false"]
    fork, call = fork_run(parent, settings, at_step=2), InProcess.call

    async def failing(self, role, method, **asked):
        if method == "reward" and asked["request"].output.startswith("evaluations/000004"):
            raise RewardError("no answer")
        return await call(self, role, method, **asked)

    def killed(*given):
        raise Killed

    with pytest.MonkeyPatch.context() as once:
        if at == "an evaluation fails for good":
            once.setattr(InProcess, "call", failing)
        else:
            once.setattr(Run, "note_checkpoint", killed)
        with pytest.raises((Killed, RewardError)):
            go_on(fork.config)
    left = find_run(fork.store.root.parent, fork.info.run_id)
    assert left.manifest.step == 3 and checkpoints.saved_steps(left.store) == [2, 4]
    fork = go_on(fork.config)
    same_bits(fork.store.root, parent)
    assert checkpoints.saved_steps(fork.store) == [6]


def test_killed_while_it_is_made_there_is_no_fork(parent):
    root = parent.store.root.parent / "dying"
    nth = 1
    while in_a_process_killed_at(nth, False, lambda: fork_run(parent, at_step=2, run_id="dying")):
        assert not root.exists()
        nth += 4
    assert nth > 12
    fork = find_run(root.parent, "dying")
    assert is_whole(fork) and leftovers(root.parent) == []


def test_an_id_that_is_taken_is_refused(parent):
    fork_run(parent, at_step=2, run_id="again")
    with pytest.raises(StoreError, match=r"again exists .* choose another --run-id"):
        fork_run(parent, at_step=2, run_id="again")


def test_an_id_that_no_run_can_have_is_refused(parent):
    for run_id in ("", "a b"):
        with pytest.raises(ConfigError, match=f"run_id = '{run_id}': must consist of letters"):
            fork_run(parent, at_step=2, run_id=run_id)


def test_show_tells_the_parent(parent):
    fork = fork_run(parent, ["name=other"], at_step=4)
    assert fork.info.run_id.startswith("other-fork-")
    command = ["show", fork.info.run_id, "--runs-dir", str(parent.store.root.parent)]
    assert "fork of      parent, from step 4" in CliRunner().invoke(app, command).stdout
    shown = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert shown["parent"] == {"run_id": "parent", "step": 4}
    command[1] = "parent"
    assert json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)["parent"] is None
