"""Names of engines, ways of syncing and batch sources."""

import importlib
import importlib.util
import sys

import pytest

from mortal_steps.errors import ConfigError, EngineError
from mortal_steps.orchestration.batch_sources.table import BATCH_SOURCES
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.rollout.engines.table import ENGINES
from mortal_steps.rollout.episodes.table import EPISODES
from mortal_steps.rollout.weight_sync.table import WEIGHT_SYNC


@pytest.mark.parametrize(
    ("key", "known"),
    [
        ("engine", ENGINES),
        ("weight_sync", WEIGHT_SYNC),
        ("source", BATCH_SOURCES),
        ("episodes", EPISODES),
    ],
)
def test_a_name_is_one_of_the_table_or_says_where_to_import_from(key, known):
    for name in (*known, "module:name", "a.package.module:Name", "a folder/file.py:Name"):
        assert getattr(parse_config({"rollout": {key: name}}).rollout, key) == name
    first = next(iter(known))
    for wrong in (
        first[:-1],
        "module:",
        ":name",
        "file.py:",
        "file.py:Name:",
        "a b:c",
        "a.txt/b:c",
    ):
        with pytest.raises(ConfigError) as refused:
            parse_config({"rollout": {key: wrong}})
        for part in (f"rollout.{key}", repr(wrong), *known, "module:name", "path/file.py:name"):
            assert part in str(refused.value)
    with pytest.raises(ConfigError, match=f"did you mean '{first}'"):
        parse_config({"rollout": {key: first[:-1]}})


def test_every_entry_names_something_that_is_there():
    tables = (ENGINES, WEIGHT_SYNC, BATCH_SOURCES, EPISODES)
    for entry in [entry for table in tables for entry in table.values()]:
        module, _, name = entry.factory.partition(":")
        source = importlib.util.find_spec(module).loader.get_source(module)
        # vLLM's module cannot be imported here.
        assert f"class {name}" in source or f"def {name}(" in source


def test_what_cannot_be_imported_is_named_with_its_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_here.py").write_text("import no_such_module_at_all")
    (tmp_path / "whole_here.py").write_text("class There: ...")
    for name, reason in (
        ("broken_here:X", "no_such_module_at_all"),
        ("broken_here.py:X", "no_such_module_at_all"),
        ("whole_here:Missing", "'Missing'"),
        ("whole_here.py:Thre", "There"),
        ("nowhere:X", str(tmp_path)),
        ("whole_hre.py:There", "whole_here.py"),
    ):
        with pytest.raises(ConfigError) as refused:
            BATCH_SOURCES.load(name)
        for part in (f"rollout.source = {name!r}", reason):
            assert part in str(refused.value)
    for name in ("whole_here:There", "whole_here.py:There"):
        assert BATCH_SOURCES.load(name).__name__ == "There"


def test_what_a_module_itself_refuses_is_raised_as_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "refusing.py").write_text(
        "from mortal_steps.errors import EngineError\nraise EngineError('no such device')"
    )
    with pytest.raises(EngineError, match="no such device"):
        BATCH_SOURCES.load("refusing.py:X")


def test_only_a_module_has_to_be_there_before_it_is_imported():
    assert ENGINES.entry("own.engine:Engine").needs == "own.engine"
    assert ENGINES.entry("own/engine.py:Engine").needs is None


def test_a_source_of_ones_own_belongs_to_the_fingerprint():
    fed = parse_config({"rollout": {"source": "replay:Replay", "source_options": {"run": "a"}}})
    other = parse_config({"rollout": {"source": "replay:Replay", "source_options": {"run": "b"}}})
    assert len({one.fingerprint() for one in (parse_config({}), fed, other)}) == 3
    assert Plan(fed).trainer.corrects_importance
    assert not Plan(parse_config({})).trainer.corrects_importance
