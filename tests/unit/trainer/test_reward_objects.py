"""mortal.trainer.objects.rewards: reward_funcs as the terms of a configuration."""

import functools
import importlib
import sys
from pathlib import Path

import pytest
from transformers import Qwen2Config, Qwen2ForSequenceClassification

from mortal.rewards import RewardEnvironment
from mortal.rewards.examples import CodeExecutionEnvironment, LLMJudgeEnvironment
from mortal.rewards.functions import Overlong, exact_match, repetition_penalty
from mortal_steps.errors import ModelError
from mortal_steps.orchestration.open_run import changes
from mortal_steps.users_code.project import folders_of
from tests.support.refused import refused
from tests.support.smallest import SMALLEST
from tests.support.trainer_config import config_of, scaled, term_of

pytestmark = pytest.mark.usefixtures("folder")


def test_names_are_the_terms_that_they_stand_for():
    terms = config_of(["sandbox", "rewards.py:correct", "org/judge"]).rewards.terms
    assert [term.type for term in terms] == ["sandbox", "function", "model"]


def test_a_model_without_a_tokenizer_is_refused():
    shape = Qwen2Config(**SMALLEST, num_labels=1)
    with refused(ModelError, "reward_processing_classes=tokenizer"):
        config_of([exact_match, Qwen2ForSequenceClassification(shape)])


def test_an_installed_function_goes_by_its_name():
    for one in (exact_match, repetition_penalty):
        assert term_of(one).function == f"mortal.rewards.functions:{one.__name__}"


def test_a_function_of_a_file_goes_by_its_file_and_one_of_a_package_by_its_module(
    folder, monkeypatch
):
    monkeypatch.syspath_prepend(folder)
    (folder / "own_rewards.py").write_text("def correct(completions, **kwargs): return [1.0]")
    (folder / "own_package").mkdir()
    (folder / "own_package/__init__.py").touch()
    (folder / "own_package/scores.py").write_text("from own_rewards import correct as base\n")
    with open(folder / "own_package/scores.py", "a") as file:
        file.write("def twice(completions, **kwargs): return base(completions)")
    from own_package.scores import twice
    from own_rewards import correct

    assert term_of(correct).function == "own_rewards.py:correct"
    assert term_of(twice).function == "own_package.scores:twice"
    closure = term_of(functools.partial(twice, bonus=1))
    assert closure.modules == ("own_package.scores",)
    assert closure.code == ("own_package.scores:pickled",)


def test_a_module_beside_the_script_goes_by_its_file_from_any_folder(folder, monkeypatch):
    scripts, work = folder / "scripts", folder / "work"
    scripts.mkdir()
    work.mkdir()
    (scripts / "beside.py").write_text("def one(completions, **kwargs):\n    return [1.0]\n")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(scripts / "train.py"), False)
    monkeypatch.syspath_prepend(scripts)
    monkeypatch.chdir(work)
    module = importlib.import_module("beside")
    assert term_of(module.one).function == f"{scripts}/beside.py:one"


@pytest.fixture
def beside(folder, monkeypatch):
    """The folder of a script that is started from another one, and has modules beside it."""
    scripts, work = folder / "scripts", folder / "work"
    (scripts / "pack_aside").mkdir(parents=True)
    work.mkdir()
    (scripts / "aside.py").write_text("import functools\n@functools.cache\ndef kept(x): return x\n")
    (scripts / "pack_aside/__init__.py").touch()
    (scripts / "pack_aside/other.py").write_text("def one(completions, **kwargs): return [1.0]\n")
    monkeypatch.setattr(sys.modules["__main__"], "__file__", str(scripts / "train.py"), False)
    monkeypatch.syspath_prepend(scripts)
    monkeypatch.chdir(work)
    return scripts


def test_modules_that_a_function_imports_when_it_runs_are_found_before_that(beside):
    def score(completions, **kwargs):
        import aside
        from pack_aside import other

        return [aside.kept(value) for value in other.one(completions)]

    assert set(term_of(score).modules) >= {f"{beside}/aside.py", f"{beside}/pack_aside/other.py"}


def test_a_function_with_a_cache_brings_the_module_that_it_is_in(beside):
    kept = importlib.import_module("aside").kept
    assert term_of(lambda completions, **kwargs: [kept(1.0)]).modules == (f"{beside}/aside.py",)


def test_a_function_of_a_package_beside_the_script_is_found_with_its_package(beside):
    term = term_of(importlib.import_module("pack_aside.other").one)
    (place,) = term.modules
    assert (term.type, place) == ("pickled", f"{beside}/pack_aside/other.py")
    assert folders_of(place, Path.cwd()) == [beside / "pack_aside", Path.cwd(), beside]
    assert folders_of(place, beside / "pack_aside") == [beside / "pack_aside"]


def test_what_has_no_name_is_pickled_under_what_it_says():
    one, two = term_of(scaled(1.0)), term_of(scaled(2.0))
    assert (one.type, one.name) == ("pickled", "lambda")
    assert one.object == term_of(scaled(1.0)).object != two.object
    assert one.load()(completions=["a"]) == [1.0]


def test_pickled_rewards_of_one_name_are_told_apart():
    terms = config_of([scaled(1.0), scaled(2.0)], reward_weights=[1, 0.5]).rewards.terms
    assert [(term.name, term.weight) for term in terms] == [("lambda_1", 1), ("lambda_2", 0.5)]


def test_another_object_is_another_run_and_another_place_of_it_is_not():
    begun, now = config_of(scaled(1.0)), config_of(scaled(2.0))
    (said,) = changes(begun, now)
    assert said.startswith("rewards.terms[lambda].object was")
    (term,) = begun.rewards.terms
    moved = begun.rewards.model_copy(update={"terms": (term.model_copy(update={"file": "b"}),)})
    assert changes(begun, begun.model_copy(update={"rewards": moved})) == []


def test_environments_that_come_with_mortal_are_their_kinds():
    code = term_of(CodeExecutionEnvironment(partial_credit=True, timeout=2.0))
    assert (code.type, code.partial_credit, code.timeout) == ("sandbox", True, 2.0)
    judge = term_of(LLMJudgeEnvironment(model="m", score_range=(0, 5), prices={"input": 1.0}))
    assert (judge.type, judge.model, judge.score_range) == ("judge", "m", (0, 5))
    assert judge.prices.input == 1.0


def test_a_judge_takes_the_address_of_the_environment(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://localhost:1/v1")
    judge = term_of(LLMJudgeEnvironment(model="m"))
    assert (judge.base_url, judge.api_key_env) == ("http://localhost:1/v1", "OPENAI_API_KEY")
    openais = term_of(LLMJudgeEnvironment(model="m", base_url="https://api.openai.com/v1"))
    assert (openais.type, openais.base_url) == ("judge", "https://api.openai.com/v1")


def test_an_environment_that_was_changed_is_no_kind_any_more():
    changed = CodeExecutionEnvironment()
    changed.column = "cases"
    assert term_of(changed).type == "pickled"

    class Derived(CodeExecutionEnvironment):
        pass

    assert term_of(Derived()).type == "pickled"


def test_environments_of_the_users_are_pickled_as_classes_or_instances():
    class Half(RewardEnvironment):
        def score(self, completion, prompt, **kwargs):
            return 0.5

    for given in (Half, Half()):
        term = term_of(given)
        assert term.name == "Half"
        assert term.load()(completions=["a", "b"], prompts=["c", "d"]) == [0.5, 0.5]


def test_a_kind_with_settings_is_taken_as_it_is():
    term = term_of(Overlong(max_length=64, buffer=16, weight=0.5))
    assert (term.type, term.max_length, term.weight) == ("overlong", 64, 0.5)
