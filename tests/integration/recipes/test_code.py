"""The repository of the user's code, as it was."""

import hashlib
import subprocess

import pytest

from mortal_steps.recipes.lineage import code
from mortal_steps.recipes.lineage.code import code_around


def git(*arguments):
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *names, *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    (tmp_path / "rewards.py").write_text("a = 1\n")
    (tmp_path / ".gitignore").write_text("runs\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "one")
    return tmp_path


def test_a_clean_repository_is_its_commit(repository):
    found = code_around(repository)
    head = (repository / ".git/refs/heads").glob("*")
    assert found.commit == next(head).read_text().strip()
    assert found.diff_sha256 is None and not found.new_files


def test_changes_are_kept_with_their_digest(repository):
    (repository / "rewards.py").write_text("a = 2\n")
    git("add", "rewards.py")  # staged ones, too
    found = code_around(repository)
    assert "+a = 2" in found.diff
    assert found.diff_sha256 == hashlib.sha256(found.diff.encode()).hexdigest()
    assert found.diff_sha256 is not None or found.new_files


def test_a_long_diff_is_known_by_its_digest_alone(repository, monkeypatch):
    monkeypatch.setattr(code, "LONGEST_DIFF", 10)
    (repository / "rewards.py").write_text("a = 2\n")
    found = code_around(repository)
    assert found.diff is None
    assert found.diff_sha256 is not None


def test_new_files_of_code_are_named(repository):
    (repository / "new.py").write_text("")
    (repository / "runs").mkdir()
    (repository / "runs/ignored.py").write_text("")
    found = code_around(repository)
    assert found.new_files == ("new.py",)
    assert found.diff_sha256 is not None or found.new_files


def test_a_folder_without_a_repository_or_a_commit(tmp_path, monkeypatch):
    assert code_around(tmp_path) is None
    monkeypatch.chdir(tmp_path)
    git("init", "--quiet")
    (tmp_path / "rewards.py").write_text("a = 1\n")
    found = code_around(tmp_path)
    assert (found.commit, found.new_files) == (None, ("rewards.py",))


def test_without_git_there_is_no_record_of_it(repository, monkeypatch):
    monkeypatch.setenv("PATH", str(repository))
    assert code_around(repository) is None


def test_a_changed_file_of_bytes_is_known_by_its_digest(repository):
    """The diff tells no more of it than git's digests of before and now."""
    (repository / "weights.bin").write_bytes(bytes(range(256)) * 1000)
    git("add", ".")
    git("commit", "--quiet", "-m", "two")
    found = set()
    for byte in (b"a", b"b"):
        (repository / "weights.bin").write_bytes(byte + bytes(range(256)) * 1000)
        found.add(code_around(repository).diff_sha256)
        assert len(code_around(repository).diff) < 1000
    assert len(found) == 2
