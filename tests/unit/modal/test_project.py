"""What of a user's folder goes along to containers."""

from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.detached import code_of
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from tests.support.refused import refused


def config_of(file, modules=(), rewards="modal"):
    term = {"type": "pickled", "name": "score", "object": "a" * 64, "file": str(file)}
    return parse_config(
        {
            "compute": {"backend": "modal", "modal": {"rewards": rewards}},
            "rewards": {"terms": [{**term, "modules": list(modules)}]},
        }
    )


def test_a_pickled_reward_goes_along_with_the_modules_that_it_imports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle = tmp_path / "runs/.objects/reward-a.pickle"
    pickle.parent.mkdir(parents=True)
    pickle.touch()
    (tmp_path / "helpers.py").touch()
    config = config_of("runs/.objects/reward-a.pickle", ["helpers.py"])
    assert code_of(Plan(config).place) == {
        "runs/.objects/reward-a.pickle": pickle,
        "helpers.py": tmp_path / "helpers.py",
    }
    beside_the_flow = config_of("runs/.objects/reward-a.pickle", ["helpers.py"], rewards="flow")
    assert code_of(Plan(beside_the_flow).place) == {}
    assert len(code_of(Plan(beside_the_flow).place, all_in_containers=True)) == 2


def test_a_pickled_reward_of_another_folder_is_refused_with_the_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with refused(ConfigError, "runs_dir"):
        code_of(Plan(config_of("/elsewhere/reward-a.pickle")).place)


def test_tools_and_environments_go_along_and_so_do_the_rewards_beside_them(tmp_path, monkeypatch):
    """They run in the containers of rollout workers, wherever the other rewards are called."""
    monkeypatch.chdir(tmp_path)
    for name in ("shop.py", "prices.py", "scores.py", "helpers.py", "counter.pickle"):
        (tmp_path / name).touch()
    (tmp_path / "shop.py").write_text("import prices")
    values = {
        "compute": {"backend": "modal"},
        "rewards": {"functions": ["scores:near"]},
        "environment": {
            "factory": {
                "shop": "shop.py:Shop",
                "own": {"object": "a" * 64, "file": "counter.pickle", "modules": ["helpers.py"]},
            }
        },
    }
    everything = {"shop.py", "prices.py", "scores.py", "helpers.py", "counter.pickle"}
    assert code_of(Plan(parse_config(values)).place).keys() == everything
    assert code_of(Plan(parse_config(values | {"environment": {}})).place).keys() == set()
