"""The folder of MORTAL's own Prefect server."""

import re

import pytest

from mortal.server.files import server_home
from mortal_steps.errors import StoreError


def test_a_home_that_cannot_be_written_to_is_told_the_way_out(tmp_path, monkeypatch):
    (tmp_path / "home").touch()
    for name in ("MORTAL_STATE_DIR", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = re.escape(str(tmp_path / "home/.local/state/mortal/prefect"))
    with pytest.raises(StoreError, match=rf"cannot make {folder} .*; set MORTAL_STATE_DIR to"):
        server_home()
