"""`mortal promote`, `mortal models` and `mortal rollback`, with workers in this process."""

import json
from functools import partial

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.errors import ConfigError, StoreError
from mortal_steps.promotion import gate
from tests.support.bare_flow import InProcess, one_thread


@pytest.fixture
def mortal(trained, tmp_path, monkeypatch):
    """What a command prints; raises what it raises."""
    monkeypatch.chdir(trained)
    monkeypatch.setenv("MORTAL_MODELS_DIR", str(tmp_path / "models"))
    monkeypatch.setattr(gate, "Gate", partial(gate.Gate, local=InProcess))

    def call(*arguments, code=0):
        with one_thread():
            done = CliRunner().invoke(app, arguments)
        if isinstance(done.exception, StoreError | ConfigError):
            raise done.exception
        assert done.exit_code == code, done.output
        return done.output

    return call


def test_a_model_goes_to_production_and_back(mortal, tmp_path):
    said = mortal("promote", "first", "--yes")
    assert f"in production: {tmp_path}/models/tiny/production -> versions/first-" in said
    assert "in production already" in mortal("promote", "first", "--yes")

    said = mortal("promote", "second", "--min-gain", "0.9", code=1)
    assert "reward " in said and "incumbent" in said
    assert "the lower end is not above +0.9000" in said
    assert "second" in mortal("promote", "second", "--min-gain", "-0.9")
    listed = mortal("models").splitlines()
    assert listed[0].split() == ["name", "run", "since", "by", "path"]
    assert listed[1].split()[:2] == ["tiny", "second"]

    assert "rolled back" in mortal("rollback", "tiny", "--why", "reads badly")
    history = json.loads(mortal("models", "tiny", "--json"))
    assert [(made["action"], made["version"]["run_id"]) for made in history] == [
        ("promoted", "first"),
        ("refused", "second"),
        ("promoted", "second"),
        ("rolled back", "first"),
    ]
    assert history[-1]["why"] == "reads badly"
    assert json.loads(mortal("models", "--json"))[0]["run"] == "first"


def test_where_nobody_can_be_asked_something_has_to_decide(mortal):
    with pytest.raises(ConfigError, match=r"use --yes, or --min-gain"):
        mortal("promote", "first")
    with pytest.raises(ConfigError, match="leave out --min-gain"):
        mortal("promote", "first", "--yes", "--min-gain", "0")


def test_a_name_about_which_nothing_was_decided_is_told(mortal):
    with pytest.raises(StoreError, match="nothing was decided about letters"):
        mortal("models", "letters")
    with pytest.raises(StoreError, match="letters: nothing is in production"):
        mortal("rollback", "letters")
