"""Files that a command writes where its user says."""

import os
import tempfile
from pathlib import Path

import pytest

from mortal.cli.arguments import check_output
from mortal_steps.errors import ConfigError
from mortal_steps.store.files import write_output

NOBODY = 65534


@pytest.fixture
def folder():
    """A folder that other users may enter."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def is_refused(file):
    """Return whether a user who is not root is refused."""
    user = os.getresuid()
    try:
        if user[0] == 0:
            os.setresuid(NOBODY, 0, 0)  # `os.access` asks for the first of them
        check_output(file)
    except ConfigError:
        return True
    finally:
        os.setresuid(*user)
    return False


@pytest.mark.parametrize(("of_folder", "of_file"), [(0o777, 0o444), (0o555, 0o666)])
def test_what_is_replaced_needs_its_folder(folder, of_folder, of_file):
    inner = folder / "inner"
    inner.mkdir()
    (inner / "there").touch()
    (inner / "link").symlink_to("there")
    (inner / "there").chmod(of_file)
    inner.chmod(of_folder)
    locked = of_folder == 0o555
    assert is_refused(inner / "there") is locked
    assert is_refused(inner / "new" / "file") is locked
    assert is_refused(inner / "link") is locked, "what a link leads to is replaced as well"


def test_a_link_stays_and_leads_to_what_is_written(folder):
    (folder / "there").write_bytes(b"before, and longer")
    for name, leads_to in (("link", "there"), ("dangling", "new"), ("deep", "a/new/file")):
        (folder / name).symlink_to(leads_to)
        check_output(folder / name)
        write_output(folder / name, b"now")
        assert (folder / name).is_symlink()
        assert (folder / leads_to).read_bytes() == b"now"


def test_a_link_to_a_folder_that_cannot_be_written_is_refused_at_once(folder):
    (folder / "closed").mkdir(0o555)
    (folder / "dangling").symlink_to("closed/new")
    assert is_refused(folder / "dangling")


def test_links_in_a_circle_are_refused(folder):
    (folder / "one").symlink_to("other")
    (folder / "other").symlink_to("one")
    with pytest.raises(ConfigError, match="one is a link that leads back to itself"):
        check_output(folder / "one")


def test_what_is_open_already_is_written_to(folder):
    """As `/dev/stdout` is, which the shell may have opened for a file."""
    with (folder / "there").open("w+b") as opened:
        write_output(Path(f"/proc/self/fd/{opened.fileno()}"), b"now")
        assert opened.read() == b"now"


def test_a_device_is_written_to(folder):
    os.mkfifo(folder / "pipe")
    reader = os.open(folder / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        check_output(folder / "pipe")
        write_output(folder / "pipe", b"now")
        assert os.read(reader, 9) == b"now"
    finally:
        os.close(reader)
    assert (folder / "pipe").is_fifo()


@pytest.mark.parametrize("name", ["there", "link"])
def test_a_file_is_replaced_as_a_whole(folder, name):
    (folder / "there").write_bytes(b"before")
    (folder / "link").symlink_to("there")
    with (folder / "there").open("rb") as opened:
        write_output(folder / name, b"now")
        assert opened.read() == b"before"
    assert (folder / "there").read_bytes() == b"now"
