"""Machines on which containers cannot have namespaces of their own."""

import os
import shutil
import subprocess
import sys

import modal
import pytest

from .conftest import sample_plane
from .plane import PACKAGE, ROOT, ModalPlane


def test_without_namespaces_volumes_are_shared(tmp_path, monkeypatch):
    mount = tmp_path / "mount"
    monkeypatch.setenv("SAMPLE_MOUNT", str(mount))
    state = tmp_path / "plane"
    with sample_plane(state, "--isolation", "none", "--env", "SAMPLE_MOUNT"):
        counter = modal.Cls.from_name("sample", "Counter")
        counter(name="a").write.remote("name", "text", commit=False)
        assert counter(name="b").read.remote("name", reload=False) == "text"
    assert mount.is_symlink()


def test_a_state_directory_is_not_used_twice(tmp_path):
    (tmp_path / "events.jsonl").touch()
    with pytest.raises(RuntimeError, match="another plane's state"), ModalPlane(tmp_path):
        pass


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="gives up a privilege")
def test_a_machine_that_allows_no_namespaces_is_told_so(tmp_path):
    command = [sys.executable, "-m", PACKAGE, "--state", str(tmp_path)]
    done = subprocess.run(
        ["setpriv", "--bounding-set", "-sys_admin", *command],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "unshare: Operation not permitted" in done.stderr
    assert "--isolation none" in done.stderr
