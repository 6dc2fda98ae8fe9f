"""Files that a harness reads: those that its table names are noticed, others are refused."""

import pytest

from mortal_steps.errors import ConfigError, HarnessError
from mortal_steps.harnesses.handler import HarnessHandler
from mortal_steps.orchestration.checking.harnesses import check_harnesses
from mortal_steps.plan.loader import dump_toml, load_stored_config, parse_config
from mortal_steps.plan.parts import Plan
from tests.support.refused import refused

CODE = """
from pathlib import Path

from mortal.extend import Harness


class Plain(Harness):
    pass


class Field(Harness):
    files: tuple[str, ...] = ("questions.json",)


class Property(Harness):
    @property
    def files(self):
        return (Path("questions.json"),)


class Read(Harness):
    @property
    def read_files(self):
        return (Path("questions.json"),)


class Timed(Harness):
    timeout_s: float = 9.0


class Code(Harness):
    @property
    def code(self):
        return ("other.py:f",)
"""


def config_of(name, **settings):
    bench = {"type": f"own_bench.py:{name}", **settings}
    return parse_config(
        {
            "data": {"source": "x.jsonl"},
            "evaluation": {"decides": "bench", "sets": {"bench": bench}},
        }
    )


@pytest.fixture
def handler_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_bench.py").write_text(CODE)

    def made(config):
        return HarnessHandler(name="bench", harness=config.evaluation.harnesses["bench"])

    return made


def test_the_files_of_the_table_are_noticed(handler_of, tmp_path):
    config = config_of("Plain", files=["questions.json"])
    assert Plan(config).code.files == ("questions.json",)
    handler_of(config).check()
    with refused(ConfigError, "evaluation.sets.bench.files", "questions.json"):
        check_harnesses(config.evaluation.harnesses, config.compute, print)
    (tmp_path / "config.toml").write_text(dump_toml(config))
    assert load_stored_config(tmp_path / "config.toml") == config
    assert config.fingerprint() == config_of("Plain").fingerprint(), "what is in them decides"


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("Field", "files"),
        ("Property", "files"),
        ("Read", "files"),
        ("Code", "files"),
        ("Timed", "timeout_s"),
    ],
)
def test_what_the_table_alone_says_is_refused_in_the_class(handler_of, name, key):
    with refused(HarnessError, f"own_bench.py:{name}", f"evaluation.sets.bench.{key}"):
        handler_of(config_of(name)).check()


def test_the_class_may_say_what_the_table_says(handler_of):
    handler_of(config_of("Timed", timeout_s=9.0)).check()
