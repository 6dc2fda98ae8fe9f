"""A dataset source of a user's own, as docs/extending.md shows one."""

import tomllib
from pathlib import Path

import pytest

from mortal_steps.config import DataConfig
from mortal_steps.data.problems import load_problems
from mortal_steps.errors import ConfigError, DataError
from tests.support.docs_examples import settings, write_modules
from tests.support.refused import refused

PAGE, HEADING = "extending.md", "A dataset source"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A user's folder, which is the current one; its modules are nobody else's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    write_modules(PAGE, HEADING, tmp_path)
    return tmp_path


def config(**changes):
    return DataConfig(**{**tomllib.loads(settings(PAGE, HEADING))["data"], **changes})


def test_the_example_of_the_page_gives_problems():
    train, held_out = load_problems(config(), seed=1)
    taken = {problem.prompt for problem in held_out}
    assert len(held_out) == 50
    assert 0 < len(train) <= 500
    assert not taken & {problem.prompt for problem in train}
    for problem in (*train, *held_out):
        left, right = problem.prompt.removesuffix("=").split("+")
        assert problem.columns == {"answer": str(int(left) + int(right))}
        assert int(left) < 20


def test_the_runs_seed_decides_the_rows():
    assert load_problems(config(), seed=1) == load_problems(config(), seed=1)
    assert load_problems(config(), seed=1) != load_problems(config(), seed=2)


def test_what_a_users_source_raises_or_gives_is_named():
    Path("broken.py").write_text("def rows(request):\n    yield {'prompt': 'a'}\n    1 / 0\n")
    with refused(DataError, "data.source = 'broken:rows'", "ZeroDivisionError"):
        load_problems(DataConfig(source="broken:rows"), seed=0)
    Path("listed.py").write_text("def rows(request):\n    yield ['a']\n")
    with refused(DataError, "data.source = 'listed:rows'", "row 0"):
        load_problems(DataConfig(source="listed:rows"), seed=0)


def test_a_source_that_cannot_be_imported_is_named():
    with refused(ConfigError, "data.source = 'nowhere:rows'", "no module 'nowhere'"):
        load_problems(DataConfig(source="nowhere:rows"), seed=0)
    with refused(ConfigError, "data.eval_source = 'sums:total'", "has no 'total'"):
        load_problems(config(eval_source="sums:total"), seed=0)


def test_a_file_or_folder_of_such_a_name_comes_first():
    folder = Path("sums:sums")
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "from the folder"}\n')
    train, _ = load_problems(DataConfig(source="sums:sums"), seed=0)
    assert [problem.prompt for problem in train] == ["from the folder"]


def test_splits_are_refused():
    with refused(DataError, "data.split = 'test'"):
        load_problems(config(split="test"), seed=0)
