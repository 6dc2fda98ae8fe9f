"""A kind of environments of a user's own, as docs/extending.md shows one."""

import pickle
import subprocess
import sys
import tomllib

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.data.values import NO_PROMPT
from mortal_steps.environments.trials.trial import EnvironmentTrial
from mortal_steps.environments.trials.tried import GivenCall
from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import dump_toml, load_config, parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.types import Problem
from tests.support.docs_examples import settings, write_modules
from tests.support.paths import ENVIRONMENTS_PYTHON

PAGE, HEADING = "extending.md", "A kind of environment"
INTERPRETERS = {
    "its own": None,
    "that of a rollout worker": sys.executable,
    "one without MORTAL": str(ENVIRONMENTS_PYTHON),
}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """A user's folder, which is the current one."""
    monkeypatch.chdir(tmp_path)
    write_modules(PAGE, HEADING, tmp_path)
    return tmp_path


def configured(**changes):
    table = tomllib.loads(settings(PAGE, HEADING))["environment"]
    return parse_config({"environment": {**table, **changes}})


def test_its_settings_decide_and_its_file_is_the_users_code(folder):
    config = configured()
    assert type(config.environment).__name__ == "Guessing"
    assert Plan(config).code.scoring == ("guessing.py:Guessing",)
    assert config.environment.is_used and config.num_made_rows is not None
    assert configured(retries=3).fingerprint() == config.fingerprint()
    assert configured(largest=4).fingerprint() != config.fingerprint()
    (folder / "other.py").write_text((folder / "guessing.py").read_text())
    assert configured(type="other.py:Guessing").fingerprint() != config.fingerprint()
    (folder / "run.toml").write_text(dump_toml(config))
    assert load_config(folder / "run.toml") == config


def test_another_process_reads_it_from_its_file(folder):
    (folder / "sent").write_bytes(pickle.dumps(configured()))
    read = "import pickle; print(pickle.load(open('sent', 'rb')).environment.largest)"
    answered = subprocess.run([sys.executable, "-c", read], capture_output=True, text=True)
    assert (answered.stdout, answered.stderr) == ("3\n", "")


@pytest.mark.parametrize("python", INTERPRETERS.values(), ids=INTERPRETERS)
def test_episodes_are_played(python):
    if python == str(ENVIRONMENTS_PYTHON) and not ENVIRONMENTS_PYTHON.exists():
        pytest.skip(f"no {ENVIRONMENTS_PYTHON}: make environments-env")
    environment = configured(python=python).environment
    trial = EnvironmentTrial(
        environment=environment, rewards=RewardsConfig(), seed=3, passed_on=(), app=""
    )
    calls = [GivenCall(name="_reply", arguments={"text": text}) for text in ("0", "1 2 3")]
    problem = Problem(id="train-0", prompt=NO_PROMPT)
    (row,) = trial.try_out(problems=[problem], calls=calls).rows
    assert not row.episode.has_failed
    assert row.episode.prompt[-1]["content"] == "Guess a number from 1 to 3."
    assert [each.content for each in row.episode.calls] == ["No.", None]
    assert list(row.episode.rewards.values()) == [0.5]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"largest": 0}, ["environment.largest = 0", "equal to 1"]),
        ({"smallest": 0}, ["environment.smallest", "largest", "timeout_s"]),
        ({"type": "guessing.py:Guesing"}, ["environment.type", "Guesing", "did you mean Guessing"]),
        ({"type": "guesing.py:Guessing"}, ["environment.type", "did you mean ./guessing.py"]),
        ({"type": "nowhere:Guessing"}, ["environment.type", "no module 'nowhere'"]),
        ({"type": "guessing.py:Game"}, ["environment", "guessing.py:Game", "environment.factory"]),
        ({"type": "gues"}, ["environment", "'gues'", "gem", "path/file.py:name"]),
        ({"tools": ["json:dumps"]}, ["guessing.py:Guessing", "brings its own tools"]),
    ],
)
def test_what_is_wrong_with_it_is_said_when_the_configuration_is_read(changed, told):
    with pytest.raises(ConfigError) as refused:
        configured(**changed)
    for part in told:
        assert part in str(refused.value)
