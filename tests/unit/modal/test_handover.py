"""What a run that is detached cannot take along is named before anything is sent."""

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.detached import check_reachable, for_run
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from tests.support.refused import refused


def config(function):
    return RunConfig(data={"source": "x"}, rewards={"functions": [function]})


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    for name in ("project/rewards.py", "elsewhere/rewards.py"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path / "project")
    return tmp_path


@pytest.mark.parametrize("file", ["../elsewhere/rewards.py", "{elsewhere}/rewards.py"])
def test_reward_functions_of_another_folder(here, file):
    check_reachable(Plan(config("rewards.py:score")).place)
    file = file.format(elsewhere=here / "elsewhere")
    with pytest.raises(ConfigError, match=r"/rewards.py:score' is in .*/elsewhere; "):
        check_reachable(Plan(config(f"{file}:score")).place)


def test_a_server_that_this_machine_alone_can_reach(here, monkeypatch):
    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example.com/api")
    check_reachable(Plan(config("rewards.py:score")).place)
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:4200/api")
    with refused(ConfigError, "PREFECT_API_URL", "http://127.0.0.1:4200/api", "unset"):
        check_reachable(Plan(config("rewards.py:score")).place)


def test_the_password_of_the_server_goes_along(monkeypatch):
    class Orchestrate:
        def with_options(self, **options):
            return options

    monkeypatch.setenv("PREFECT_API_URL", "https://prefect.example.com/api")
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "me:secret")
    env = for_run(Orchestrate(), config("rewards.py:score").compute.modal)["env"]
    assert env["PREFECT_API_URL"] == "https://prefect.example.com/api"
    assert env["PREFECT_API_AUTH_STRING"] == "me:secret"
