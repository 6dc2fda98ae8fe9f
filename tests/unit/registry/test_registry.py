"""mortal_steps.registry: decisions, the link that follows them, versions of their own."""

import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from mortal_steps.errors import ConfigError, CorruptFileError, StoreError
from mortal_steps.registry.registry import Registry, list_names, runs_in_use
from mortal_steps.store.files import digest_file
from mortal_steps.store.json_record import FORMAT
from tests.support.refused import refused
from tests.support.registry import decide, model_files


@pytest.fixture
def registry(tmp_path):
    return Registry(tmp_path / "models", "letters")


def promoted(registry, run_id, folder, **options):
    """A version of that run, in production."""
    version = registry.add(**model_files(folder / run_id, run_id, content=run_id, **options))
    before = registry.production()
    decide(registry, "promoted", version, before=before and before.id)
    return version


def test_production_is_a_link_to_a_folder_that_outlives_its_run(registry, tmp_path):
    promoted(registry, "run-1", tmp_path)
    shutil.rmtree(tmp_path / "run-1")
    assert (tmp_path / "models/letters/production/model.safetensors").read_text() == "run-1"
    assert registry.production().run_id == "run-1"


def test_a_refused_model_changes_the_history_alone(registry, tmp_path):
    first = promoted(registry, "run-1", tmp_path)
    second = registry.add(**model_files(tmp_path / "run-2", "run-2", content="2"))
    decide(registry, "refused", second, before=first.id)
    assert registry.production() == first
    assert [made.action for made in registry.history()] == ["promoted", "refused"]
    assert not registry.store.path(second.path).exists()  # its run has it


def test_a_model_that_was_in_use_stays_for_a_rollback_when_it_is_refused(registry, tmp_path):
    first = promoted(registry, "run-1", tmp_path)
    second = promoted(registry, "run-2", tmp_path)
    registry.roll_back(by="Ada", why="slow")
    decide(registry, "refused", second, before=first.id, by="Ada", why="slow")
    assert registry.roll_back(by="Ada", why="fixed", to="run-2").version == second


def test_a_request_is_decided_once(registry, tmp_path):
    version = registry.add(**model_files(tmp_path / "run-1"))
    asked = {"before": None, "by": "Ada", "request": "flow run 1"}
    first = decide(registry, "promoted", version, why="good", **asked)
    again = decide(registry, "refused", version, why="bad", **asked)
    assert again == first == registry.answered("flow run 1")
    assert len(registry.history()) == 1


def test_a_decision_against_another_model_than_the_one_in_use_is_refused(registry, tmp_path):
    promoted(registry, "run-1", tmp_path)
    late = registry.add(**model_files(tmp_path / "run-2", "run-2", content="2"))
    with refused(StoreError, "run-1-", "compare again"):
        decide(registry, "promoted", late)
    assert registry.production().run_id == "run-1"


def test_rollbacks_go_back_one_by_one_or_to_a_run(registry, tmp_path):
    for run_id in ("run-1", "run-2", "run-3"):
        promoted(registry, run_id, tmp_path)
    assert registry.roll_back(by="Ada", why="slow").version.run_id == "run-2"
    assert registry.roll_back(by="Ada", why="slow").version.run_id == "run-1"
    with refused(StoreError, "before run-1"):
        registry.roll_back(by="Ada", why="slow")
    registry.roll_back(by="Ada", why="fixed", to="run-3")
    assert registry.link.joinpath("model.safetensors").read_text() == "run-3"
    with refused(StoreError, "run-9", "run-1, run"):
        registry.roll_back(by="Ada", why="?", to="run-9")
    with pytest.raises(StoreError, match="is in production already"):
        registry.roll_back(by="Ada", why="?", to="run-3")
    assert registry.roll_back(by="Ada", why="slow").version.run_id == "run-1"


def test_nothing_is_rolled_back_where_nothing_is_in_use(registry):
    with pytest.raises(StoreError, match="nothing is in production"):
        registry.roll_back(by="Ada", why="?")


def test_a_kill_between_the_decision_and_the_link_is_made_good(registry, tmp_path, monkeypatch):
    promoted(registry, "run-1", tmp_path)
    monkeypatch.setattr(Registry, "_follow", lambda self: None)
    promoted(registry, "run-2", tmp_path)
    assert registry.link.joinpath("model.safetensors").read_text() == "run-1"
    monkeypatch.undo()
    registry.follow()
    assert registry.link.joinpath("model.safetensors").read_text() == "run-2"


def test_a_rollback_that_was_cut_short_is_not_done_twice(registry, tmp_path, monkeypatch):
    for run_id in ("run-1", "run-2", "run-3"):
        promoted(registry, run_id, tmp_path)
    monkeypatch.setattr(Registry, "_follow", lambda self: None)
    registry.roll_back(by="Ada", why="slow")
    monkeypatch.undo()
    assert registry.roll_back(by="Ada", why="slow").version.run_id == "run-2"
    assert registry.link.joinpath("model.safetensors").read_text() == "run-2"
    assert len(registry.history()) == 4


def test_what_a_kill_has_left_is_removed(registry, tmp_path):
    version = promoted(registry, "run-1", tmp_path)
    link = registry.store.path(".production.0a1b2c3d.partial")
    link.symlink_to(version.path)
    half = registry.store.path("versions/.run-2-00000000.0a1b2c3d.partial")
    half.mkdir()
    (half / "model.safetensors").write_text("half")
    promoted(registry, "run-2", tmp_path)
    assert not link.is_symlink() and not half.exists()
    assert registry.store.path(version.path).is_dir()


def test_a_version_that_is_damaged_is_linked_anew_from_its_run(registry, tmp_path):
    model = model_files(tmp_path / "run-1")
    version = registry.add(**model)
    weights = registry.store.path(version.path) / "model.safetensors"
    weights.unlink()
    assert registry.add(**model) == version
    assert digest_file(weights) == version.weights_sha256


def test_a_file_that_is_not_what_the_run_committed_is_not_brought_in(registry, tmp_path):
    model = model_files(tmp_path / "run-1")
    (tmp_path / "run-1/model.safetensors").write_text("other")
    with pytest.raises(CorruptFileError, match=r"run-1/model\.safetensors is damaged"):
        registry.add(**model)
    assert list(registry.store.path("versions").iterdir()) == []


def test_a_damaged_model_is_neither_promoted_nor_rolled_back_to(registry, tmp_path):
    first = promoted(registry, "run-1", tmp_path)
    promoted(registry, "run-2", tmp_path)
    (registry.store.path(first.path) / "config.json").unlink()
    with pytest.raises(CorruptFileError, match=r"config\.json is missing"):
        registry.roll_back(by="Ada", why="slow")
    assert registry.production().run_id == "run-2"


@pytest.mark.parametrize("lost", ["000001.json", "000002.json"])
def test_a_history_with_a_gap_is_noticed(registry, tmp_path, lost):
    for run_id in ("run-1", "run-2", "run-3"):
        promoted(registry, run_id, tmp_path)
    registry.store.path(f"history/{lost}").unlink()
    with pytest.raises(CorruptFileError, match="does not follow the decision before it"):
        registry.production()


def test_the_runs_in_use_are_those_of_each_production_and_what_they_are_forks_of(tmp_path):
    models = tmp_path / "models"
    one, two = Registry(models, "one"), Registry(models, "two")
    promoted(one, "run-1", tmp_path)
    promoted(one, "run-3", tmp_path, runs=("run-3", "run-2", "run-0"))
    promoted(two, "run-9", tmp_path)
    refused = two.add(**model_files(tmp_path / "run-8", "run-8", content="8"))
    decide(two, "refused", refused, before=two.production().id)
    assert runs_in_use(models) == {"run-0", "run-2", "run-3", "run-9"}
    assert [registry.name for registry in list_names(models)] == ["one", "two"]
    assert runs_in_use(tmp_path / "nowhere") == set()


def test_a_name_is_that_of_a_folder(tmp_path):
    with refused(ConfigError, "name = '../x'"):
        Registry(tmp_path, "../x")


def test_of_two_that_decide_at_once_one_is_told_to_compare_again(registry, tmp_path):
    first = registry.add(**model_files(tmp_path / "run-1", "run-1", content="1"))
    second = registry.add(**model_files(tmp_path / "run-2", "run-2", content="2"))
    with ThreadPoolExecutor(2) as threads:
        outcomes = list(threads.map(partial(_decide, registry), (first, second)))
    assert sorted(outcomes) == ["compare again", "promoted"]
    assert len(registry.history()) == 1
    assert os.readlink(registry.link) == registry.production().path


def _decide(registry, version):
    try:
        return decide(registry, "promoted", version).action
    except StoreError as error:
        return str(error).rpartition("; ")[2]


def test_a_decision_of_an_earlier_version_is_read_without_a_comparison_by_problem(
    registry, tmp_path
):
    """What was written before `paired` was."""
    decide(registry, "promoted", registry.add(**model_files(tmp_path / "run-1")))
    path = registry.store.path("history/000001.json")
    payload = json.loads(path.read_bytes().splitlines()[1])
    assert payload.pop("paired") is None
    content = json.dumps(payload).encode()
    head = json.dumps({"sha256": hashlib.sha256(content).hexdigest(), "format": FORMAT}).encode()
    path.write_bytes(head + b"\n" + content + b"\n")
    (decision,) = registry.history()
    assert (decision.action, decision.paired) == ("promoted", None)
