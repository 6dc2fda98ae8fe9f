"""A bit flipped in every kind of file: it is noticed, and the run ends with the same bits all the
same, or stops and names the file."""

import dataclasses
import itertools
import json
import os
import re
import shutil
import subprocess

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.policy import journal
from mortal_steps.report.recorder import Recorder
from mortal_steps.runs.logs import EVALUATIONS, METRICS, TIMINGS
from mortal_steps.runs.verify import check_run
from mortal_steps.store import RunStore
from tests.support.bare_flow import Killed, go_on, project_config
from tests.support.damage import flip_a_bit
from tests.support.verified import damaged_files, same_bits

KILLED_AFTER = 3
"""Taken, not noted: the manifest stands at step 3, the newest checkpoint at step 2."""

REPLAYED, HISTORY, UNNOTED = "steps/000002", "steps/000000", f"steps/{KILLED_AFTER:06d}"
STEP_FILES = (
    *("batch.json", "journal.json", "result.json"),
    *("generations-0.parquet", "rewards-1.parquet"),
)
ALONE = (
    *("manifest.json", "../.models/*/model.safetensors"),
    *(f"weights/v3/{name}" for name in ("model.safetensors", "probe.json", "manifest.json")),
    *(f"checkpoints/step-2/{name}" for name in ("model.safetensors", "optimizer.pt")),
    *("checkpoints/step-2/state.json", "checkpoints/step-2/manifest.json"),
)
BESIDE = (
    *("base_model.json", "metrics.jsonl", "evaluations.jsonl", "timings.jsonl"),
    *("checkpoints/best.json", "../.models/*/manifest.json"),
)
"""What is made again without regard to any other file: damaged together with files of steps."""
TOGETHER = itertools.zip_longest(
    (f"{REPLAYED}/{name}" for name in STEP_FILES),
    (f"{UNNOTED}/{name}" for name in (*STEP_FILES[1:], STEP_FILES[0])),
    BESIDE,
)
"""Other files of the two steps each time."""
RECOVERED = (*((name,) for name in ALONE), *(tuple(filter(None, some)) for some in TOGETHER))
NOT_NEEDED = (
    *(f"{HISTORY}/{name}" for name in STEP_FILES),
    *("evaluations/000002/generations-0.parquet", "evaluations/000002/rewards-1.parquet"),
)
LOST = ("run.json", "config.toml", "data/train.arrow", "data/eval.json", "reward_sources.json")
FINAL = ("final/model.safetensors", "final/manifest.json", "final/tokenizer.json")


@pytest.fixture(scope="module")
def config(project):
    """Train steps wait for checkpoints, so that it is known which one a killed run has."""
    config = project_config(project)
    waits = config.checkpoints.model_copy(update={"background": False})
    return config.model_copy(update={"checkpoints": waits})


@pytest.fixture(scope="module")
def whole(project, config, patch):
    """Two runs that began alike: one that nothing happened to, one killed in the middle."""
    in_whole, in_killed = (
        config.model_copy(update={"runs_dir": str(project / name)}) for name in ("whole", "killed")
    )
    open_run(in_whole)
    shutil.copytree(project / "whole", project / "killed")
    run = go_on(in_whole)
    assert run.manifest.status == "completed"
    with pytest.raises(Killed):
        go_on(in_killed, killed_after=KILLED_AFTER)
    return run


@pytest.fixture
def killed(whole, project, config, tmp_path):
    """A copy of the killed run, and the configuration that goes on with it."""
    return copy_of(project / "killed", tmp_path, config)


@pytest.fixture
def completed(whole, project, config, tmp_path):
    return copy_of(project / "whole", tmp_path, config)


def test_steps_that_are_passed_again_are_idle_once(project, config, tmp_path):
    (project / "same.py").write_text(
        "def same(completions, **kwargs): return [0.5] * len(completions)"
    )
    training = config.training.model_copy(update={"max_idle_steps": 6})
    rewards = config.rewards.model_copy(update={"functions": ("same.py:same",)})
    changes = {"training": training, "rewards": rewards, "runs_dir": str(tmp_path)}
    idle = config.model_copy(update=changes)
    with pytest.raises(Killed):
        go_on(idle, killed_after=KILLED_AFTER)
    damage(tmp_path / "run", f"{REPLAYED}/journal.json")
    run = go_on(idle)
    assert (run.manifest.status, run.manifest.step) == ("completed", 6)


def copy_of(runs_dir, tmp_path, config):
    going = shutil.ignore_patterns(".*.removed")  # a thread may be deleting these
    shutil.copytree(runs_dir, tmp_path / "runs", ignore=going)
    return tmp_path / "runs" / "run", config.model_copy(update={"runs_dir": str(tmp_path / "runs")})


def damage(root, pattern):
    """Flip a bit at a place that the name decides; returns the file."""
    (path,) = sorted(
        root.parent.glob(pattern[3:]) if pattern.startswith("../") else [root / pattern]
    )
    if pattern == TIMINGS:  # of which there is no digest: only what nobody can read is noticed
        content = path.read_bytes()
        path.write_bytes(bytes([content[0] ^ 0x80]) + content[1:])
    else:
        flip_a_bit(path, pattern)
    return path


def test_without_damage_nothing_is_found(killed, whole, patch):
    root, config = killed
    assert damaged_files(root) == {}
    go_on(config)
    same_bits(root, whole)
    check = check_run(root.parent, root.name)
    assert sum(1 for file in check.files if file.damage) == 0
    assert (check.num_steps, check.num_linked) == (6, 6)


@pytest.mark.parametrize("patterns", RECOVERED, ids="+".join)
def test_the_run_recovers_to_the_same_bits(killed, whole, patch, patterns):
    root, config = killed
    paths = {damage(root, pattern).resolve() for pattern in patterns}
    assert set(damaged_files(root)) == paths
    go_on(config)
    same_bits(root, whole)
    left = damaged_files(root)
    assert set(left.values()) <= {"passed over"} and set(left) <= paths


def test_logs_removed_in_mid_run_are_made_again_at_its_end(killed, whole, patch, monkeypatch):
    root, config = killed
    take = Recorder.step

    def meddled_with(recorder, batch, rewards, result):
        if result.step == 4:
            for name in (METRICS, EVALUATIONS):
                (root / name).unlink()
            (root / "steps/000004/.rewards-0.parquet.0a1b2c3d.partial").touch()
        return take(recorder, batch, rewards, result)

    monkeypatch.setattr(Recorder, "step", meddled_with)
    (root / "steps/.pruned.json.0a1b2c3d.partial").touch()
    for name in ("steps/000005.bak", "evaluations/000002.old", "steps/0x3"):
        (root / name).mkdir()  # what a user put back from a copy, or aside
    go_on(config)
    same_bits(root, whole)
    assert damaged_files(root) == {}
    assert list(root.glob("steps/*/.*")) == list(root.glob("steps/.*")) == []


def test_the_records_of_steps_before_the_checkpoint_are_not_needed(killed, whole, patch):
    root, config = killed
    paths = set()
    for pattern in NOT_NEEDED:
        paths.add(damage(root, pattern).resolve())
        assert damaged_files(root) == dict.fromkeys(paths, "passed over")
    go_on(config)
    same_bits(root, whole)
    assert damaged_files(root) == dict.fromkeys(paths, "passed over")


@pytest.mark.parametrize("pattern", LOST)
def test_what_is_nowhere_else_stops_the_run_and_is_named(killed, patch, pattern):
    root, config = killed
    path = damage(root, pattern)
    assert damaged_files(root) == {path.resolve(): "cannot be recovered"}
    with pytest.raises(CorruptFileError, match=rf"{path} .*--run-id"):
        go_on(config)


@pytest.mark.parametrize("pattern", FINAL)
def test_a_damaged_final_model_is_made_again(completed, whole, patch, pattern):
    root, config = completed
    before = {p.name: p.read_bytes() for p in (root / "final").iterdir()}
    path = damage(root, pattern)
    assert damaged_files(root) == {path.resolve(): "will be made again"}
    go_on(config)
    assert {p.name: p.read_bytes() for p in (root / "final").iterdir()} == before
    same_bits(root, whole)
    assert damaged_files(root) == {}


@pytest.mark.parametrize("name", [METRICS, EVALUATIONS])
def test_resume_makes_a_lost_log_of_a_complete_run_again_as_verify_says(completed, patch, name):
    root, _ = completed
    before = (root / name).read_bytes()
    (root / name).unlink()
    assert damaged_files(root) == {(root / name).resolve(): "will be made again"}
    resumed = CliRunner().invoke(app, ["resume", "run", "--runs-dir", str(root.parent), "--trust"])
    assert "is complete" in resumed.output, resumed.exception
    assert (root / name).read_bytes() == before
    assert damaged_files(root) == {}


@pytest.mark.parametrize(
    "pattern",
    [*(name for name in (*ALONE, *BESIDE) if name.startswith("../")), "base_model.json"],
)
def test_a_complete_run_does_not_need_what_it_trained_with(completed, pattern):
    root, _ = completed
    assert os.listdir(root / "weights") == [], "no version is needed any more"
    path = damage(root, pattern)
    assert damaged_files(root) == {path.resolve(): "passed over"}


def test_a_run_that_lost_its_identity_is_not_begun_again_on_its_steps(killed, patch):
    root, config = killed
    (root / "run.json").unlink()
    assert damaged_files(root) == {(root / "run.json").resolve(): "cannot be recovered"}
    with pytest.raises(CorruptFileError, match=r"run\.json is missing; .*--run-id"):
        go_on(config)


def test_a_lost_manifest_and_lost_logs_are_made_again(killed, whole, patch):
    root, config = killed
    for name in ("manifest.json", "metrics.jsonl", "evaluations.jsonl", "checkpoints/best.json"):
        (root / name).unlink()
    go_on(config)
    same_bits(root, whole)


@pytest.mark.parametrize(
    "pattern", ["manifest.json", "metrics.jsonl", "timings.jsonl", "evaluations.jsonl"]
)
def test_what_can_be_shown_of_a_damaged_run_is_shown(killed, caplog, pattern):
    root, _ = killed
    path = root / pattern
    path.write_bytes(b"\xff" + path.read_bytes()[1:])
    for command in (["show", "run"], ["runs"]):
        caplog.clear()
        shown = CliRunner().invoke(app, [*command, "--runs-dir", str(root.parent), "--json"])
        assert shown.exit_code == 0, shown.exception
        unread = {"evaluations.jsonl", *(["timings.jsonl"] if command == ["runs"] else [])}
        assert pattern in unread or str(path) in caplog.text
        found = json.loads(shown.stdout)
        assert (found[0] if command == ["runs"] else found)["run_id"] == "run"


def test_a_run_without_identity_is_named_and_the_others_are_listed(killed, caplog):
    root, _ = killed
    shutil.copytree(root, root.parent / "other")
    path = damage(root, "run.json")
    shown = CliRunner().invoke(app, ["runs", "--runs-dir", str(root.parent), "--json"])
    assert len(json.loads(shown.stdout)) == 1
    assert str(path) in caplog.text
    shown = CliRunner().invoke(app, ["show", "run", "--runs-dir", str(root.parent)])
    assert isinstance(shown.exception, CorruptFileError) and str(path) in str(shown.exception)


def test_verify_names_the_file_and_what_it_means(killed):
    root, _ = killed
    command = ["verify", "run", "--runs-dir", str(root.parent)]
    whole = CliRunner().invoke(app, command)
    assert whole.exit_code == 0
    assert re.search(
        r"\d+ files, [1-9]\d* kB, all as they were committed; the chain of 3 steps is whole",
        whole.stdout,
    )
    path = damage(root, "weights/v3/model.safetensors")
    damaged = CliRunner().invoke(app, command)
    assert damaged.exit_code == 1
    assert f"{path} is damaged: its digest does not match: will be made again" in damaged.stdout
    as_json = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert (as_json["steps"], as_json["linked"]) == (3, 3)
    assert [file["path"] for file in as_json["damaged"]] == [str(path)]


def test_records_of_another_history_break_the_chain(killed):
    root, _ = killed
    store = RunStore(root)
    result = journal.find_result(store, 1)
    journal.write_result(store, dataclasses.replace(result, state_id="0" * 64))
    found = damaged_files(root)
    assert set(found.values()) == {"cannot be recovered"}
    assert {path.parent.name for path in found} == {"000001", "000002", "step-2"}


def test_a_run_goes_on_once_a_full_disk_has_space_again(killed, whole, patch, tmp_path):
    root, config = killed
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system is not permitted here")
    try:
        shutil.copytree(root.parent, disk, dirs_exist_ok=True)
        room = shutil.disk_usage(disk).used + 32768
        subprocess.run(["mount", "-o", f"remount,size={room}", str(disk)], check=True)
        config = config.model_copy(update={"runs_dir": str(disk)})
        with pytest.raises(StoreError, match=r"the disk is full.* continue with `mortal resume`"):
            go_on(config)
        assert damaged_files(disk / "run") == {}
        subprocess.run(["mount", "-o", "remount,size=16m", str(disk)], check=True)
        go_on(config)
        same_bits(disk / "run", whole)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)  # its model is still mapped
