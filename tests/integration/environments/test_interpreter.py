"""`environment.python`: environments live in an interpreter of their own."""

import pytest

from mortal_steps.config import EnvironmentConfig
from mortal_steps.environments.messages import EpisodeStart, Opened, ToolCall
from mortal_steps.environments.processes.host import environment_host
from mortal_steps.errors import ConfigError
from tests.support.environments.describing import describe_once
from tests.support.environments.interpreters import INSTALLED, NEEDED, make_interpreter

WHERE = """
import importlib.util, sys

class Where:
    def reset(self, **row):
        pass

    def look(self) -> str:
        '''Say where this runs.'''
        found = [name for name in ("mortal", "prefect") if importlib.util.find_spec(name)]
        return f"{sys.executable} {found}"
"""


def config(python, folder, **settings) -> EnvironmentConfig:
    (folder / "where.py").write_text(WHERE)
    return EnvironmentConfig(python=python, factory=str(folder / "where.py:Where"), **settings)


def test_environments_live_in_it_and_see_nothing_else_that_is_installed_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = [each.name for each in INSTALLED.iterdir()]
    others = [name for name in names if not name.startswith(("__editable__", "mortal", "prefect"))]
    python = make_interpreter(tmp_path / "venv", others)
    host = environment_host(config(python, tmp_path), {})
    try:
        start = EpisodeStart(
            environment="", prompt=[{"role": "user", "content": ""}], row={}, reset_seed=0, seed=0
        )
        host.start()
        host.call("open", returns=Opened, timeout_s=20, start=start)
        call = ToolCall(name="look", arguments={}, call_id="1")
        (answer,) = host.call("call", returns=list, timeout_s=20, episode=0, calls=[call])
    finally:
        host.close()
    assert answer["content"] == f"{python} []"


def test_it_lacks_what_is_needed(tmp_path):
    python = make_interpreter(tmp_path / "venv", set(NEEDED) - {"blake3"})
    with pytest.raises(ConfigError) as refused:
        describe_once(config(python, tmp_path))
    for part in (f"{python!r} has no blake3, transformers", "pip install 'blake3' 'transformers=="):
        assert part in str(refused.value)


@pytest.mark.parametrize(("content", "told"), [(None, "no program"), ("exit 3", "is no Python")])
def test_it_is_none(content, told, tmp_path):
    python = tmp_path / "python"
    if content is not None:
        python.write_text(f"#!/bin/sh\n{content}\n")
        python.chmod(0o755)
    with pytest.raises(ConfigError, match=told) as refused:
        describe_once(config(str(python), tmp_path))
    assert f"environment.python = {str(python)!r}" in str(refused.value)
