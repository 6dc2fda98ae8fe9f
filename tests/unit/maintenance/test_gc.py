"""`mortal gc` beside others that write to the folder of runs, and where something cannot go."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal.maintenance.gc import carry_out, plan, runs_in_production
from mortal_steps.orchestration.trials.grading import FOLDER as GRADED
from mortal_steps.plan.loader import parse_config
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.store.files import locked_at_once
from mortal_steps.store.folders import looks_below
from mortal_steps.types import Problem
from tests.support.aging import age

OTHER_DISK = Path("/dev/shm")


@pytest.mark.skipif(not OTHER_DISK.is_dir(), reason="one disk alone")
def test_what_lies_on_another_disk_is_named_and_the_rest_is_gone_on_with(tmp_path):
    runs = tmp_path / "runs"
    other = OTHER_DISK / f"mortal-gc-{os.getpid()}"
    try:
        for key in ("abc", "def"):
            (other / key).mkdir(parents=True)
        runs.mkdir()
        (runs / GRADED).symlink_to(other)
        age(other)
        said = []
        planned = plan(runs)
        assert len(planned.items) == 2
        assert not carry_out(planned, runs, said.append)
        assert len(said) == 2
        for key, line in zip(("abc", "def"), said, strict=True):
            assert f"{GRADED}/{key} cannot be moved into" in line
            assert "remove it by hand" in line
    finally:
        shutil.rmtree(other)


def test_a_link_to_another_folder_stays_and_so_does_what_it_leads_to(tmp_path):
    runs, other = tmp_path / "runs", tmp_path / "other"
    (other / "shards").mkdir(parents=True)
    (runs / GRADED).mkdir(parents=True)
    (runs / GRADED / "abc").symlink_to(other)
    age(runs)
    age(other)
    said = []
    assert not carry_out(plan(runs), runs, said.append)
    assert len(said) == 1 and f"{GRADED}/abc" in said[0]
    assert "it is a link to another folder; remove both by hand" in said[0]
    assert (runs / GRADED / "abc" / "shards").is_dir()
    assert [path.name for path in runs.glob(".*.trash")] == []


def test_a_link_that_a_removal_has_left_goes_and_its_folder_stays(tmp_path):
    runs, other = tmp_path / "runs", tmp_path / "other"
    for folder in (runs, other):
        folder.mkdir()
    (runs / ".abc.1.trash").symlink_to(other)
    assert carry_out(plan(runs), runs, lambda line: None)
    assert other.is_dir() and list(runs.glob("*.trash")) == []


def test_what_others_remove_meanwhile_is_no_error(tmp_path):
    """As a grading does, which gives its files their names once they are whole."""
    shards = tmp_path / "runs" / GRADED / "abc"
    for name in ("first/.partial", "second/whole"):
        (shards / name).parent.mkdir(parents=True)
        (shards / name).write_text("x")
    listed, is_over = [], False

    def remove(event, arguments):
        """Once the second folder is listed, empty the first."""
        if event != "os.scandir" or is_over or Path(str(arguments[0])).parent != shards:
            return
        listed.append(Path(str(arguments[0])))
        if listed[0] != listed[-1]:
            for file in os.listdir(listed[0]):
                (listed[0] / file).unlink()

    sys.addaudithook(remove)
    assert plan(tmp_path / "runs").items == ()
    assert len(set(listed)) == 2
    is_over = True
    looks = looks_below(shards)
    next(looks)
    shutil.rmtree(shards)
    assert list(looks) == []


def test_a_folder_of_models_that_is_named_and_not_there_protects_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["gc", "--models-dir", "modles", "--delete"])
    assert done.exit_code != 0
    assert "--models-dir modles: there is no such folder" in str(done.exception or done.output)
    assert CliRunner().invoke(app, ["gc"]).exit_code == 0


def test_runs_that_began_where_the_caller_may_not_look_are_protected(tmp_path, monkeypatch):
    """A folder that cannot be looked into, here since its name is too long."""
    monkeypatch.chdir(tmp_path)
    for name in ("ours", "theirs"):
        if name == "theirs":
            monkeypatch.setattr(Path, "cwd", lambda: tmp_path / ("x" * 300))
        store, problem = RunStore(tmp_path / "runs" / name), Problem(id="p", prompt="a")
        write_identity(store, parse_config({"run_id": name}), [problem], [], None)
    monkeypatch.setattr(Path, "cwd", lambda: tmp_path)
    assert runs_in_production(tmp_path / "runs", None) == {"theirs"}


def test_what_a_kill_has_left_half_made_goes_after_a_day(tmp_path):
    """A fork has a random name of its own, so that none comes again and takes its place."""
    runs = tmp_path / "runs"
    folders = [runs / ".models/.9f2c.4567cdef.partial", runs / ".run-fork-1a.0123abcd.partial"]
    for folder in folders:
        (folder / "checkpoints").mkdir(parents=True)
        (folder / "checkpoints" / "model.safetensors").write_bytes(bytes(100))
    assert plan(runs).items == (), "they may be being made"
    for folder in folders:
        age(folder)
    said = []
    assert carry_out(plan(runs), runs, said.append)
    assert [line.split(",")[0] for line in said] == [
        f"removed {folder.relative_to(runs)}" for folder in folders
    ]
    assert not any(folder.exists() for folder in folders)


def test_a_run_that_was_killed_before_it_began_goes_after_a_day(tmp_path):
    """Without a name of its own, the next beginning of it has another id."""
    runs = tmp_path / "runs"
    never, lost = runs / "run-20260131-235959-3fa2", runs / "lost"
    for folder in (never, lost):
        (folder / "data").mkdir(parents=True)
        (folder / "data" / ".train.arrow.0123abcd.partial").write_bytes(bytes(100))
        (folder / "lock").touch()
    (lost / "steps").mkdir()
    assert plan(runs).items == (), "they may be beginning"
    age(runs)
    planned = plan(runs)
    with locked_at_once(never / "lock"):
        assert not carry_out(planned, runs, print), "somebody begins it again"
    assert never.exists()
    assert carry_out(planned, runs, print)
    assert not never.exists() and lost.exists(), "what has only lost its identity stays"


def test_only_what_a_run_writes_before_it_begins_is_taken_for_one(tmp_path):
    runs = tmp_path / "runs"
    others = ("name/history/000000.json", "mine/data.bin", "ours/data/table.csv", "old/logs/a.log")
    for file in others:
        path = runs / file
        path.parent.mkdir(parents=True)
        path.write_text("x")
        (runs / Path(file).parts[0] / "lock").touch()
    begun = ("config.toml", ".run.json.0123abcd.partial", "reward_sources.json", "lease.json")
    for file in (*begun, "lock", "data/train.arrow", "data/eval.json", "data/prepared/a"):
        path = runs / "never" / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    age(runs)
    assert [item.what for item in plan(runs).items] == [
        "never, of a run that was killed before it began"
    ]


def test_a_run_that_has_begun_there_meanwhile_stays(tmp_path):
    root, said = tmp_path / "runs" / "r", []
    root.mkdir(parents=True)
    (root / "lock").touch()
    age(root.parent)
    planned = plan(root.parent)
    assert len(planned.items) == 1
    problem = Problem(id="p", prompt="a")
    write_identity(RunStore(root), parse_config({"run_id": "r"}), [problem], [], None)
    assert not carry_out(planned, root.parent, said.append)
    assert "a run has begun there meanwhile" in said[0]
    assert find_run(root.parent, "r").info.run_id == "r"
