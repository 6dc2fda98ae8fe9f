"""What parameters and objects become in the configuration."""

import functools
import importlib
import json
import sys
from pathlib import Path

import pandas
import pytest

from mortal import Distributed, GPUConfig, MortalTrainer, SingleNode
from mortal.rewards import RewardEnvironment
from mortal.rewards.examples import CodeExecutionEnvironment, LLMJudgeEnvironment
from mortal.rewards.functions import Overlong, exact_match
from mortal.trainer.settings import changed_keys, overrides
from mortal_steps.config.loader import load_config
from mortal_steps.errors import (
    ConfigError,
    DataError,
    ModelError,
    RewardError,
    RunNotFoundError,
)
from mortal_steps.orchestration.opening import changes
from mortal_steps.rewards.project import folders_of

ROWS = [{"prompt": "1 + 1 =", "answer": "2"}, {"prompt": "1 + 2 =", "answer": "3"}]
NEW = {"model.new.max_position_embeddings": 64}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    return tmp_path


def config_of(reward="sandbox", *, config=NEW, **given):
    given.setdefault("train_dataset", ROWS)
    return MortalTrainer("model", reward, config=config, **given).config


def term_of(reward):
    (term,) = config_of(reward).rewards.terms
    return term


def scaled(by):
    return lambda completions, **kwargs: [by] * len(completions)


def test_parameters_are_keys():
    config = config_of(
        num_generations=8,
        learning_rate=1e-4,
        max_steps=3,
        loss_type="grpo",
        scale_rewards=False,
        use_lora=True,
        run_id="mine",
        config={**NEW, "rollout": {"staleness": 1}, "training.trl": {"warmup_steps": 3}},
    )
    training = config.training
    assert (training.num_generations, training.learning_rate, training.max_steps) == (8, 1e-4, 3)
    assert (training.loss_type, training.scale_rewards, training.use_lora) == ("grpo", "none", True)
    assert (config.run_id, config.rollout.staleness) == ("mine", 1)
    assert training.trl == {"warmup_steps": 3}


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (Distributed(), ("distributed", None, 2, "reload")),
        (SingleNode(), ("single_node", "transformers", 1, "reload")),
        (SingleNode(use_vllm=True), ("single_node", "vllm", 1, "reload")),
        (
            Distributed(num_rollout_workers=3, weight_sync_method="volume"),
            ("distributed", None, 3, "volume"),
        ),
    ],
    ids=str,
)
def test_modes_are_keys(mode, expected):
    config = config_of(mode=mode)
    rollout = config.rollout
    found = (config.compute.mode, rollout.engine, config.num_rollout_workers, rollout.weight_sync)
    assert found == expected


def test_vllm_on_a_gpu_of_its_own_is_what_the_configuration_calls_a_server():
    mode = SingleNode(gpu=GPUConfig("A100", count=2), use_vllm=True, vllm_mode="serve")
    modal = config_of(mode=mode).compute.modal
    assert (modal.gpu, modal.vllm_mode) == ("A100:2", "server")


@pytest.mark.parametrize(
    ("key", "parameter"),
    [
        ("training.max_steps", "the parameter max_steps"),
        ("data.source", "the parameter train_dataset"),
        ("rewards.terms", "the parameter reward_funcs"),
        ("compute.mode", "the parameter mode"),
    ],
)
def test_a_key_that_a_parameter_has_is_refused_with_both_names(key, parameter):
    with pytest.raises(ConfigError, match=rf"'{key}'.*{parameter}"):
        config_of(config={key: 1})


def test_an_unknown_key_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match=r"did you mean rollout\.staleness"):
        config_of(config={**NEW, "rollout.stalenes": 1})


def test_the_default_number_of_tokens_leaves_room_for_a_prompt():
    assert config_of().max_tokens == 32
    assert config_of(max_tokens=40).max_tokens == 40
    assert config_of(config={"model.new.max_position_embeddings": 2**20}).max_tokens == 8000


def test_without_a_dataset_it_is_programs_with_test_cases():
    data = config_of(train_dataset=None).data
    assert (data.source, data.config, data.max_samples) == (
        "OpenCoder-LLM/opc-sft-stage2",
        "educational_instruct",
        128,
    )


def test_a_reward_of_your_own_needs_a_dataset_to_score():
    with pytest.raises(ConfigError, match=r"reward_funcs\[1\] has no dataset.*give train_dataset"):
        config_of(["sandbox", scaled(1.0)], train_dataset=None)


def test_rows_are_a_file_that_is_named_after_them():
    first, again = config_of().data.source, config_of(train_dataset=tuple(ROWS)).data.source
    assert first == again
    assert list(map(json.loads, Path(first).read_text().splitlines())) == ROWS
    assert config_of(train_dataset=ROWS[:1]).data.source != first


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        ([], "has no rows"),
        ({"train": ROWS}, r"train_dataset=dataset\['train'\]"),
        ((row for row in ROWS), "which has no length"),
        (["1 + 1 ="], "a row is a dict of columns"),
        (pandas.DataFrame(ROWS), r"frame\.to_dict\('records'\)"),
        ([{"prompt": "1", "answer": object()}], r"train_dataset\[0\]\['answer'\]"),
        ([{"prompt": "1", "answer": float("nan")}], r"train_dataset\[0\]\['answer'\]"),
    ],
    ids=["empty", "splits", "generator", "texts", "frame", "object", "nan"],
)
def test_what_is_no_dataset_is_refused(dataset, said):
    with pytest.raises(DataError, match=said):
        config_of(train_dataset=dataset)


def test_evaluation_comes_with_its_dataset():
    config = config_of(eval_dataset=ROWS[:1])
    assert config.data.eval_source.endswith(".jsonl")
    assert config.evaluation.eval_steps == 100
    asked = config_of(eval_dataset=ROWS[:1], config={**NEW, "evaluation.eval_steps": 7})
    assert asked.evaluation.eval_steps == 7


def test_names_are_the_terms_that_they_stand_for():
    terms = config_of(["sandbox", "rewards.py:correct", "org/judge"]).rewards.terms
    assert [term.type for term in terms] == ["sandbox", "function", "model"]


def test_an_installed_function_goes_by_its_name():
    assert term_of(exact_match).function == "mortal_steps.rewards.functions:exact_match"


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


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"reward": []}, "reward_funcs is empty"),
        ({"reward": [exact_match], "reward_weights": [1, 2]}, "2 numbers for 1 reward_funcs"),
        ({"reward": [7]}, r"reward_funcs\[0\] is of type int"),
        ({"reward": "correct"}, "'correct' is no reward"),
        ({"reward": 7}, r"reward_funcs is of type int"),
        ({"reward_weights": 1.0}, r"reward_weights = 1\.0: write a list"),
        ({"mode": "single_node"}, r"write SingleNode\(...\)"),
        ({"runs_dir": None}, "runs_dir = None: name a folder"),
        ({"runs_dir": ""}, "runs_dir = '': name a folder"),
        ({"config": [1]}, r"config = \[1\]: write keys and values"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_what_cannot_be_meant_is_refused(given, said, folder):
    with pytest.raises((ConfigError, RewardError), match=said):
        config_of(**given)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("gpu", "said"),
    [
        (lambda: SingleNode(gpu=None), r"None: write a GPU's name"),
        (lambda: GPUConfig("A100", 2.0), r"write GPUConfig\('A100', count=2\)"),
        (lambda: GPUConfig("A100:2", 2), r"write GPUConfig\('A100', count=2\)"),
    ],
    ids=["none", "fraction", "twice"],
)
def test_what_is_no_gpu_is_refused(gpu, said):
    with pytest.raises(ConfigError, match=said):
        gpu()


def test_what_is_no_tokenizer_is_refused():
    with pytest.raises(ModelError, match=r"processing_class is of type str; give a tokenizer"):
        config_of(processing_class="model")


def test_a_trainer_without_a_run_says_so():
    trainer = MortalTrainer("model", scaled(1.0), train_dataset=ROWS, config=NEW)
    with pytest.raises(RunNotFoundError, match=r"call train\(\)"):
        trainer.generate("1 + 1 =")
    with pytest.raises(ConfigError, match="resume=7"):
        trainer.train(resume=7)
    with pytest.raises(RunNotFoundError, match="no run named 'grpo'"):
        trainer.train(resume=True)


def test_changes_of_a_fork_are_read_as_the_command_lines(folder):
    keys = changed_keys(
        {"reward_funcs": [scaled(3.0)], "max_steps": 9, "config": {"rollout.stop": ['"', "\n"]}},
        "runs",
    )
    (folder / "c.toml").touch()
    config = load_config(folder / "c.toml", overrides(keys))
    assert (config.training.max_steps, config.rollout.stop) == (9, ('"', "\n"))
    assert config.rewards.terms == config_of(scaled(3.0)).rewards.terms
    with pytest.raises(ConfigError, match=r"fork\(model=...\)"):
        changed_keys({"model": "other"}, "runs")
    with pytest.raises(ConfigError, match="mode = 'apart'"):
        changed_keys({"mode": "apart"}, "runs")
