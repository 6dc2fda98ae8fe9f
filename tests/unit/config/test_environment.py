"""[environment]: what it takes, and what it cannot be beside."""

import tomllib

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.plan.loader import dump_toml, load_config, parse_config
from mortal_steps.plan.run_config import RunConfig
from tests.support.refused import refused

TOOLS = {"tools": ["tools.py:search"]}
OBJECT = {"object": "a" * 64, "file": "runs/.objects/environment-a.pickle", "modules": ["b.py"]}


def test_a_factory_is_code_an_object_or_a_table_of_both():
    alone = parse_config({"environment": {"factory": OBJECT}}).environment
    assert (alone.has_names, list(alone.factories)) == (False, [""])
    assert (alone.code, alone.files) == (("b.py:object",), (OBJECT["file"],))
    table = {"shop": "shop.py:Shop", "own": OBJECT}
    several = parse_config({"environment": {"factory": table} | TOOLS}).environment
    assert (several.has_names, list(several.factories)) == (True, ["shop", "own"])
    assert several.code == ("shop.py:Shop", "b.py:object", "tools.py:search")


@pytest.mark.parametrize("factory", ["shop.py:Shop", OBJECT, {"shop": "a:B", "own": OBJECT}])
def test_a_run_directory_keeps_it(factory):
    config = parse_config({"environment": {"factory": factory, "tools": ["a:b", OBJECT]}})
    again = parse_config(tomllib.loads(dump_toml(config)))
    assert again.environment == config.environment
    assert again.fingerprint() == config.fingerprint()


def test_an_interpreter_of_this_machine_is_refused_on_modal():
    beside = {"environment": {**TOOLS, "python": "~/venv/bin/python"}}
    assert "~" not in str(parse_config(beside).environment.python)
    with refused(ConfigError, "environment.python = ", "[compute.modal.environment]"):
        parse_config({**beside, "compute": {"backend": "modal"}})


def test_on_modal_a_table_takes_the_place_of_the_interpreter():
    table = {"modal": {"environment": {"packages": ["verifiers==0.4.0"]}}}
    beside = {"environment": {**TOOLS, "python": "/venv/bin/python"}}
    on_modal = parse_config({**beside, "compute": {"backend": "modal", **table}})
    assert on_modal.compute.away_from_rollouts.environment.packages == ("verifiers==0.4.0",)
    again = parse_config(tomllib.loads(dump_toml(on_modal)))
    assert again.compute == on_modal.compute
    here = parse_config({**beside, "compute": table})
    assert here.compute.away_from_rollouts is None
    assert here.fingerprint() == on_modal.fingerprint()
    alone = {"backend": "modal", "modal": {"environment": {}}}
    assert parse_config({"compute": alone}).compute.away_from_rollouts.environment.cpu == 2.0


@pytest.mark.parametrize(
    ("beside", "told"),
    [
        ({"algorithm": {"type": "rloo"}}, ["algorithm.type = 'rloo'", "'grpo'"]),
        ({"rollout": {"stop": ["\n"]}}, ["rollout.stop = ['\\n']", "leave it out"]),
        ({"rollout": {"episodes": "own:Two"}}, ["rollout.episodes = 'own:Two'", "leave out one"]),
        ({"rollout": {"source": "own:Rows"}}, ["rollout.source = 'own:Rows'", "leave out one"]),
    ],
)
def test_what_it_cannot_be_beside_is_refused_by_its_key(beside, told):
    parse_config(beside)
    with refused(ConfigError, *told):
        parse_config({"environment": TOOLS, **beside})


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"timeout_s": 3}, ["environment.factory", "environment.tools"]),
        ({"factory": {}}, ["environment.factory = {}"]),
        ({"tools": ["search"]}, ["environment.tools", "'search'", "path/file.py:Name"]),
        (
            {**TOOLS, "outages": ["OSError"]},
            ["environment.outages", "'OSError'", "path/file.py:Name"],
        ),
    ],
)
def test_what_names_nothing_to_call_is_refused(environment, told):
    with refused(ConfigError, *told):
        parse_config({"environment": environment})


def test_rows_are_made_where_an_environment_may_give_the_prompts():
    assert RunConfig(environment=TOOLS).num_made_rows is None
    config = RunConfig(environment={"factory": "a:B"}, training={"batch_size": 3})
    assert config.num_made_rows == 3


def test_without_a_file_an_environment_is_not_given_the_programs():
    written = ["environment.factory=shop.py:Shop", "training.max_steps=3"]
    assert load_config(None, written).data.source == ""
    assert load_config(None, written[1:]).data.source
