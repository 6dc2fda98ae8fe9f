"""mortal.trainer.objects.environments: tools and environment_factory as keys of [environment]."""

import importlib
import json
import sys
import threading
from pathlib import Path

import pytest

from mortal import MortalTrainer
from mortal_steps.config.environment import PickledCode
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.open_run import changes
from mortal_steps.rewards.pickles.files import read_pickle
from tests.support.trainer_config import NEW, config_of, scaled

pytestmark = pytest.mark.usefixtures("folder")

MODULE = """
import own_prices

class Shop:
    def reset(self, **row): return None
    def buy(self, item: str) -> str:
        '''Buy.'''
        return own_prices.of(item)

def search(query: str) -> str:
    '''Search.'''
    return query
"""
SCRIPT = """
PRICE = {price}

class Shop:
    '''{said}'''
    names = ["one"]

    @staticmethod
    def _price(): return PRICE
    @property
    def dear(self): return PRICE > 3
    def reset(self, **row): return None
    def buy(self, item: {kind}) -> str:
        '''Buy.'''
        return f"{{item}} for {{self._price()}}"

def search(query: {kind}) -> str:
    '''Search.'''
    return f"{{query}} {{PRICE}}"
"""


def environment_of(**given):
    return config_of(scaled(1.0), **given).environment


def script(price=2, kind="str", said="A shop."):
    made = {"__name__": "__main__"}
    exec(SCRIPT.format(price=price, kind=kind, said=said), made)
    return made


@pytest.fixture
def shop(folder, monkeypatch):
    (folder / "own_shop.py").write_text(MODULE)
    (folder / "own_prices.py").write_text("def of(item): return '3'")
    monkeypatch.syspath_prepend(folder)
    for name in ("own_shop", "own_prices"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return importlib.import_module("own_shop")


def test_without_them_there_is_no_environment():
    assert not environment_of().is_used
    assert not environment_of(tools=[], environment_factory=None).is_used


def test_what_can_be_imported_goes_by_its_name(shop):
    found = environment_of(tools=[shop.search, "own_tools:ask"], environment_factory=shop.Shop)
    assert found.factory == "own_shop.py:Shop"
    assert found.tools == ("own_shop.py:search", "own_tools:ask")


def test_several_environments_keep_their_names(shop):
    own = script()["Shop"]
    found = environment_of(environment_factory={"shop": shop.Shop, "own": own, "far": "a.b:C"})
    assert found.has_names
    kinds = {name: type(code) for name, code in found.factories.items()}
    assert kinds == {"shop": str, "own": PickledCode, "far": str}


def test_a_class_of_the_script_is_kept_and_works_elsewhere():
    kept = environment_of(environment_factory=script()["Shop"]).factory
    made = read_pickle(Path(kept.file), kept.object, kept.modules)()
    assert made.buy("tea") == "tea for 2" and not made.dear
    assert type(made).__name__ == "Shop" and made.buy.__annotations__["item"] is str


def test_closures_and_methods_are_tools(shop):
    def counting(start):
        def count(by: int) -> int:
            """Count."""
            return start + by

        return count

    counted, bought = environment_of(tools=[counting(3), shop.Shop().buy]).tools
    assert read_pickle(Path(counted.file), counted.object, counted.modules)(4) == 7
    assert bought.modules == ("own_shop.py",)


@pytest.mark.parametrize("name", ["Shop", "search"])
def test_what_the_model_is_told_and_what_it_is_answered_identify_an_object(name):
    def given(made):
        if name == "Shop":
            return config_of(scaled(1.0), environment_factory=made[name])
        return config_of(scaled(1.0), tools=[made[name]])

    begun = given(script())
    assert changes(begun, given(script())) == []
    assert changes(begun, given(script(price=5)))
    assert changes(begun, given(script(kind="int")))


def test_an_own_reward_takes_the_place_of_reward_funcs(shop):
    given = {"environment_factory": shop.Shop, "config": NEW}
    assert not MortalTrainer(train_dataset=[{"target": 1}], **given).config.rewards.are_named
    both = MortalTrainer(reward_funcs=scaled(1.0), train_dataset=[{"target": 1}], **given)
    assert [term.name for term in both.config.rewards.terms] == ["lambda"]
    with pytest.raises(ConfigError, match=r"reward_weights=\[2\.0\].*`get_reward` is 1"):
        MortalTrainer(reward_weights=[2.0], train_dataset=[{"target": 1}], **given)


def test_rows_need_no_prompt_and_a_run_no_rows(shop):
    given = {"environment_factory": shop.Shop, "config": NEW}
    config = MortalTrainer(train_dataset=[{"target": 1}], **given).config
    assert json.loads(Path(config.data.source).read_text()) == {"target": 1}
    assert MortalTrainer(max_steps=3, **given).config.data.source == ""


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"tools": print}, r"tools = .*write a list of functions"),
        ({"tools": "own.py:search"}, r"tools = 'own\.py:search'.*list"),
        ({"tools": [3]}, r"tools\[0\] is of type int"),
        ({"environment_factory": {}}, r"environment_factory = \{\}: name at least one"),
        ({"environment_factory": {"a": 1}}, r"environment_factory\['a'\] is of type int"),
        ({"environment_factory": "Shop"}, r"'Shop' names no code.*package\.module:Name"),
        ({"config": {**NEW, "environment.tools": ["a:b"]}}, "use the parameter tools instead"),
        ({"tools": [print], "algorithm": "rloo"}, r"algorithm\.type = 'rloo'"),
    ],
)
def test_what_is_no_environment_is_refused_with_the_remedy(given, told):
    with pytest.raises(ConfigError, match=told):
        environment_of(**given)


def test_an_object_that_cannot_travel_is_named():
    lock = threading.Lock()

    def locked() -> str:
        """Lock."""
        return str(lock)

    with pytest.raises(ConfigError, match=r"tools\[0\] \(locked\).*lock"):
        environment_of(tools=[locked])


def test_an_agent_is_a_function_in_the_parameter_config(shop):
    def config(agent):
        given = {**NEW, "environment.type": "agent", "environment.agent": agent}
        return MortalTrainer(train_dataset=[{"prompt": "1"}], config=given).config

    assert config(shop.search).environment.agent == "own_shop.py:search"
    kept = config(script()["search"])
    agent = kept.environment.agent
    read = read_pickle(Path(agent.file), agent.object, agent.modules)
    assert read("pears") == "pears 2"
    assert kept.rewards.terms == (), "the agent says itself whether it scores"
    with pytest.raises(ConfigError, match=r"environment\.agent.*int"):
        config(3)
