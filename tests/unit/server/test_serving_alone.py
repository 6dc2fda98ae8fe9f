"""One `mortal schedule` for a name."""

import os

import pytest

from mortal.server.scheduled import serving_alone
from mortal_steps.errors import ConfigError


def test_a_second_one_is_refused_and_told_of_the_first(tmp_path, monkeypatch):
    monkeypatch.setenv("MORTAL_STATE_DIR", str(tmp_path))
    told = rf"process {os.getpid()} in /.* another --name"
    with serving_alone("grpo-train/demo", "http://here/api"):
        with (
            pytest.raises(ConfigError, match=told),
            serving_alone("grpo-train/demo", "http://here/api"),
        ):
            pass
        with serving_alone("grpo-train/demo", "http://there/api"):
            pass
    with serving_alone("grpo-train/demo", "http://here/api"):
        pass
