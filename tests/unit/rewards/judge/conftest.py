"""A server that judges, and the directory of a run."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from mortal_steps.rewards.judge import environment
from mortal_steps.rewards.judge.ledger import JudgedRun, use_run
from mortal_steps.store.identity import IDENTITY_FILE
from tests.support.judge_asked import in_run
from tests.support.judge_stub import JudgeStub


@pytest.fixture
def stub() -> Iterator[JudgeStub]:
    with JudgeStub() as made:
        yield made


@pytest.fixture
def run_dir(tmp_path: Path) -> Iterator[Path]:
    """In which the judges of this process work."""
    (tmp_path / IDENTITY_FILE).write_text("{}")
    in_run(tmp_path)
    yield tmp_path
    use_run(JudgedRun())


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Judges come back a hundred times as soon as they do for others."""
    monkeypatch.setattr(environment, "FIRST_DELAY_S", 0.005)
    monkeypatch.setattr(environment, "LONGEST_DELAY_S", 0.2)
