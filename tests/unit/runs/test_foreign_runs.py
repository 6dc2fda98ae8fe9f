"""Run directories that somebody else made: their names lead nowhere else, and what they start is
asked about."""

import dataclasses
import hashlib
import json

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import CorruptFileError, StoreError
from mortal_steps.places.modal.files.mirror import pull_folder
from mortal_steps.plan.loader import parse_config
from mortal_steps.policy.starting_model.base_model import StartingModel
from mortal_steps.runs import trust
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.run import find_run, list_runs
from mortal_steps.runs.trust import check_trusted
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE, read_identity
from mortal_steps.types import FileRef, FinalModel, Problem, WeightsRef
from mortal_steps.types.identity import RunInfo
from tests.support.refused import refused

OUTSIDE = ("../up", "/etc/passwd", "a/../../up", "", "..", "a\0b")
LOCAL = {"actor": {"python": "bin/python"}, "reward": {"env": {"JUDGE_KEY": "secret"}}}
REFUSED = "is no path below the run directory"


@pytest.fixture
def store(tmp_path):
    return RunStore(tmp_path / "runs" / "run")


def written(store, local=LOCAL, **values):
    """A run directory that has begun."""
    values = {"run_id": "run", "compute": {"local": local}, "model": {"new": {}}, **values}
    write_identity(store, parse_config(values), [Problem(id="p", prompt="a")], [])
    return read_identity(store)


@pytest.mark.parametrize("name", OUTSIDE)
def test_no_record_and_no_folder_names_a_file_outside(store, name):
    merged = {"merged_path": name, "merged_sha256": "0"}
    records = [
        FileRef(path=name, sha256="0"),
        WeightsRef(version=1, path=name, sha256="0"),
        StartingModel(key=name, path="/a", sha256="0", weights_sha256="0"),
        FinalModel(path="final", sha256="0", weights_sha256="0", **merged),
    ]
    for number, record in enumerate(records):
        store.write_record(f"{number}.json", record, type(record))
        with pytest.raises(CorruptFileError, match=REFUSED):
            store.find_record(f"{number}.json", type(record))
    if name:
        with pytest.raises(CorruptFileError, match=REFUSED):
            store.path(name)
    with store.committing_folder("final") as folder:
        (folder / "a").write_text("a")
    manifest = json.dumps({"files": {name: "0" * 64}}).encode()
    store.path("final/manifest.json").write_bytes(manifest)
    for ask in (
        lambda: store.folder_files("final"),
        lambda: store.verify_folder("final", hashlib.sha256(manifest).hexdigest()),
    ):
        with pytest.raises(CorruptFileError, match=REFUSED):
            ask()


class HostileVolume:
    """Whatever is asked for, it has; a folder of it lists a file above."""

    async def read(self, path):
        return json.dumps({"files": {"../../../taken": "0" * 64}}).encode()

    async def download(self, path, target):
        target.write_text("taken")


async def test_nothing_that_a_volume_lists_is_written_outside(store, tmp_path):
    with pytest.raises(CorruptFileError, match=rf"run/final is damaged: .*{REFUSED}"):
        await pull_folder(HostileVolume(), store, "final", "0" * 64)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("field", "value"),
    [("uid", "../../run/data"), ("uid", "0" * 31), ("run_id", "../run"), ("working_dir", "runs")],
)
def test_names_in_run_json_that_find_other_files_are_refused(store, field, value):
    """Prefect keeps results by the uid, and unpickles them."""
    info = written(store)
    store.write_record(IDENTITY_FILE, dataclasses.replace(info, **{field: value}), RunInfo)
    with pytest.raises(CorruptFileError, match=rf"run\.json .*{field}"):
        find_run(store.root.parent, "run")


def test_programs_named_by_a_run_from_elsewhere_are_asked_about(store, monkeypatch):
    info = written(store)
    check_trusted(find_run(store.root.parent, "run"))
    store.write_record(IDENTITY_FILE, dataclasses.replace(info, host="elsewhere"), RunInfo)
    for command in ("resume", "fork"):
        told = CliRunner().invoke(app, [command, "run", "--runs-dir", str(store.root.parent)])
        assert isinstance(told.exception, StoreError)
        assert "began on another machine (elsewhere)" in str(told.exception)
        for named in (
            "actor.python = 'bin/python'",
            "reward.env with JUDGE_KEY. Read it",
            "--trust",
        ):
            assert named in str(told.exception)
    store.write_record(IDENTITY_FILE, dataclasses.replace(info, host=None), RunInfo)
    check_trusted(find_run(store.root.parent, "run"))  # begun before that was noted
    monkeypatch.setattr(trust.os, "getuid", lambda: 12345)
    with pytest.raises(StoreError, match="belongs to another user"):
        check_trusted(find_run(store.root.parent, "run"))


def test_a_run_from_elsewhere_that_names_no_programs_just_goes_on(store):
    info = written(store, local={})
    store.write_record(IDENTITY_FILE, dataclasses.replace(info, host="elsewhere"), RunInfo)
    check_trusted(find_run(store.root.parent, "run"))


def test_a_place_of_a_run_from_elsewhere_is_asked_about_if_it_is_none_of_mortals(store):
    info = written(store, compute={"backend": "rack:Rack"})
    store.write_record(IDENTITY_FILE, dataclasses.replace(info, host="elsewhere"), RunInfo)
    with pytest.raises(StoreError, match=r"compute\.backend = 'rack:Rack'\. Read it"):
        check_trusted(find_run(store.root.parent, "run"))


def test_a_judge_to_which_a_run_from_elsewhere_sends_a_key_is_asked_about(store):
    judge = {"type": "judge", "model": "m", "base_url": "http://other/v1", "api_key_env": "AWS_KEY"}
    info = written(store, local={}, rewards={"terms": [judge]})
    store.write_record(IDENTITY_FILE, dataclasses.replace(info, host="elsewhere"), RunInfo)
    with refused(StoreError, "api_key_env = 'AWS_KEY'", "http://other/v1"):
        check_trusted(find_run(store.root.parent, "run"))


def test_a_pickle_of_a_run_from_elsewhere_is_asked_about(store):
    term = {"type": "pickled", "name": "score", "object": "a" * 64, "file": "score.pickle"}
    info = written(store, local={}, rewards={"terms": [term]})
    check_trusted(find_run(store.root.parent, "run"))
    store.write_record(IDENTITY_FILE, dataclasses.replace(info, host="elsewhere"), RunInfo)
    with refused(StoreError, "score.pickle", "code"):
        check_trusted(find_run(store.root.parent, "run"))


def test_settings_with_values_for_the_environment_are_for_the_owner_alone(store, tmp_path):
    written(store)
    assert store.path("config.toml").stat().st_mode & 0o777 == 0o600
    shared = RunStore(tmp_path / "runs" / "shared")
    written(shared, local={})
    assert shared.path("config.toml").stat().st_mode & 0o044


def test_a_run_that_cannot_be_read_is_no_reason_to_list_none(store, caplog):
    written(store)
    (store.root.parent / "other" / IDENTITY_FILE).mkdir(parents=True)  # as one without permission
    assert [run.info.run_id for run in list_runs(store.root.parent)] == ["run"]
    assert "other/run.json cannot be read: Is a directory" in caplog.text


def test_what_scores_the_evaluations_of_a_run_from_elsewhere_is_asked_about(store):
    judge = {"type": "judge", "model": "m", "base_url": "http://other/v1", "api_key_env": "AWS_KEY"}
    pickled = {"type": "pickled", "name": "score", "object": "a" * 64, "file": "score.pickle"}
    info = written(
        store,
        local={},
        data={"source": "x.jsonl", "eval_sets": {"hard": "h.jsonl"}},
        evaluation={
            "decides": "bench",
            "sets": {"hard": {"terms": [judge, pickled]}, "bench": {"type": "bench.py:Bench"}},
        },
    )
    check_trusted(find_run(store.root.parent, "run"))
    store.write_record(IDENTITY_FILE, dataclasses.replace(info, host="elsewhere"), RunInfo)
    told = ("sets.hard.terms with api_key_env = 'AWS_KEY'", "score.pickle", "bench.py:Bench")
    with refused(StoreError, *told):
        check_trusted(find_run(store.root.parent, "run"))
