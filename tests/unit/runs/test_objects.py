"""Objects that scripts gave to a trainer: they go when no run names them."""

import dataclasses
import os
import time

import pytest

from mortal.maintenance.gc import carry_out, plan
from mortal.trainer.objects.datasets import source_of
from mortal_steps.errors import StoreError
from mortal_steps.plan.loader import parse_config
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.manifest import MANIFEST_FILE, RunManifest
from mortal_steps.runs.objects import BEFORE_A_RUN_S, remove_object
from mortal_steps.store import RunStore
from mortal_steps.store.identity import IDENTITY_FILE
from mortal_steps.types import Problem
from mortal_steps.types.identity import RunInfo

LONG_AGO = time.time() - 2 * BEFORE_A_RUN_S


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path / "runs"


def given(rows, *, at=LONG_AGO):
    """The name of a dataset that a script has given, `at` which time."""
    source = source_of([{"prompt": row} for row in rows], "runs", "train_dataset")
    os.utime(source, (at, at))
    return source


def begun(runs, run_id, source, updated_at=None):
    store = RunStore(runs / run_id)
    config = parse_config({"run_id": run_id, "data": {"source": source}})
    info = write_identity(store, config, [Problem(id="p", prompt="a")], [])
    info = dataclasses.replace(info, created_at=updated_at or info.created_at)
    store.write_record(IDENTITY_FILE, info, RunInfo)
    manifest = RunManifest(status="stopped", updated_at=updated_at or time.time())
    store.write_record(MANIFEST_FILE, manifest, RunManifest)


def cleaned(runs, **options):
    """Names of the objects that are left."""
    said = []
    assert carry_out(plan(runs, **options), runs, said.append), said
    return {path.name for path in (runs / ".objects").iterdir()}


def test_an_object_goes_with_the_last_run_that_names_it(runs):
    used, shared, unused = given("ab"), given("cd"), given("ef")
    begun(runs, "new", used)
    for run_id, updated_at in (("old", LONG_AGO), ("older", LONG_AGO)):
        begun(runs, run_id, shared, updated_at)
    listed = [item for item in plan(runs).items if "object" in item.what]
    assert [os.path.basename(unused) in item.what for item in listed] == [True]
    assert listed[0].num_bytes > 0
    assert cleaned(runs) == {os.path.basename(name) for name in (used, shared)}
    assert cleaned(runs, keep_days=1, protected={"older"}) == {
        os.path.basename(name) for name in (used, shared)
    }
    assert cleaned(runs, keep_days=1) == {os.path.basename(used)}


def test_an_object_that_a_script_gives_stays_until_its_run_has_begun(runs):
    name = given("ab")
    planned = plan(runs)
    assert source_of([{"prompt": row} for row in "ab"], "runs", "train_dataset") == name
    assert plan(runs).items == ()
    with pytest.raises(StoreError, match="a script has given it again"):
        planned.items[0].remove()
    assert not carry_out(planned, runs, lambda line: None)
    assert os.path.exists(name)


def test_what_a_killed_script_left_goes_and_models_stay(runs):
    given("ab")
    for name in (".saving-x1", "model-77ab", "asked"):
        (runs / ".objects" / name).mkdir()
        (runs / ".objects" / name / "file").write_text("x")
        os.utime(runs / ".objects" / name, (LONG_AGO, LONG_AGO))
    assert cleaned(runs) == {"model-77ab", "asked"}


def test_every_object_stays_where_a_run_does_not_tell_what_it_names(runs, caplog):
    name = given("ab")
    (runs / "odd" / "config.toml").mkdir(parents=True)
    assert plan(runs).items == ()
    assert "config.toml cannot be read, so every object stays" in caplog.text
    with pytest.raises(StoreError):
        remove_object(runs.parent / name)
