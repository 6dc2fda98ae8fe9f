"""Every test has a folder of its own, with ten letters in it where it asks."""

from pathlib import Path

import pytest

from tests.support.rows import write_lines


@pytest.fixture(autouse=True)
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Relative sources start in an empty folder, and nothing asks the hub."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    return tmp_path


@pytest.fixture
def letters(tmp_path: Path) -> str:
    """Ten rows, `p0=` to `p9=`."""
    return write_lines("letters.jsonl", [{"prompt": f"p{i}=", "answer": i} for i in range(10)])
