"""Names of engines, ways of syncing and batch sources."""

import importlib
import importlib.util
import sys

import pytest

from mortal_steps.config.engines import ENGINES
from mortal_steps.config.loader import parse_config
from mortal_steps.config.rollout import BATCH_SOURCES, EPISODES, WEIGHT_SYNC
from mortal_steps.errors import ConfigError
from mortal_steps.extensions import import_named
from mortal_steps.plan import trainer_plan


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
    for name in (*known, "module:name", "a.package.module:Name"):
        assert getattr(parse_config({"rollout": {key: name}}).rollout, key) == name
    first = next(iter(known))
    for wrong in (first[:-1], "module:", ":name", "file.py:Name:", "a b:c"):
        with pytest.raises(ConfigError) as refused:
            parse_config({"rollout": {key: wrong}})
        for part in (f"rollout.{key}", repr(wrong), *known, "module:name"):
            assert part in str(refused.value)
    with pytest.raises(ConfigError, match=f"did you mean '{first}'"):
        parse_config({"rollout": {key: first[:-1]}})


def test_every_entry_names_something_that_is_there():
    tables = (ENGINES, WEIGHT_SYNC, BATCH_SOURCES, EPISODES)
    for entry in [entry for table in tables for entry in table.values()]:
        module, _, name = entry.factory.partition(":")
        source = importlib.util.find_spec(module).loader.get_source(module)
        assert f"class {name}" in source  # vLLM's module cannot be imported here


def test_what_cannot_be_imported_is_named_with_its_key(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "broken_here.py").write_text("import no_such_module_at_all")
    (tmp_path / "whole_here.py").write_text("class There: ...")
    with pytest.raises(ConfigError, match=r"rollout\.source = 'broken_here:X'.*no_such_module"):
        import_named("broken_here:X", "rollout.source")
    with pytest.raises(ConfigError, match=r"has no 'Missing'"):
        import_named("whole_here:Missing", "rollout.source")
    assert import_named("whole_here:There", "rollout.source").__name__ == "There"


def test_a_source_of_ones_own_belongs_to_the_fingerprint():
    fed = parse_config({"rollout": {"source": "replay:Replay", "source_options": {"run": "a"}}})
    other = parse_config({"rollout": {"source": "replay:Replay", "source_options": {"run": "b"}}})
    assert len({one.fingerprint() for one in (parse_config({}), fed, other)}) == 3
    assert trainer_plan(fed).corrects_importance
    assert not trainer_plan(parse_config({})).corrects_importance
