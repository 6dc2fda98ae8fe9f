"""A configuration out of a file or none, flags and overrides."""

import pytest

from mortal_steps.config.field_metadata import keys_of
from mortal_steps.errors import ConfigError
from mortal_steps.flags import FLAGS
from mortal_steps.plan.loader import load_config, override_config
from mortal_steps.plan.run_config import RunConfig
from tests.support.refused import refused

DATASET = {"dataset": "train.jsonl"}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        "[data]\nsource = 'train.jsonl'\n[model.new]\n[training]\nmax_steps = 3\nbatch_size = 2\n"
    )
    return path


@pytest.mark.parametrize("written", ["training.lr", "lr"])
def test_a_key_is_known_by_its_first_letters(written):
    with refused(ConfigError, f"{written}: unknown key; did you mean training.learning_rate?"):
        load_config(None, [f"{written}=1e-5"], DATASET)


def test_every_flag_writes_keys_that_there_are():
    known = {key for key, _ in keys_of(RunConfig)}
    for flag in FLAGS:
        keys = {*flag.switches} or {flag.key, flag.single_node_key or flag.key}
        assert keys <= known
        assert all(key in flag.description for key in keys)


def test_a_flag_is_stronger_than_the_file_and_leaves_the_rest(file):
    config = load_config(file, (), {"max_steps": 7, "epochs": None, "reward": []})
    assert (config.training.max_steps, config.training.batch_size) == (7, 2)
    assert config.data.source == "train.jsonl"


@pytest.mark.parametrize("override", ["training.max_steps=6", "training={max_steps=6}"])
def test_a_flag_and_an_override_that_differ_are_refused(file, override):
    with refused(ConfigError, "--max-steps 5", "--set training.max_steps=6"):
        load_config(file, [override], {"max_steps": 5})


def test_a_flag_and_an_override_that_agree_are_taken(file):
    config = load_config(file, ["training.max_steps=5"], {"max_steps": 5})
    assert config.training.max_steps == 5


def test_a_switch_and_an_override_that_differ_are_refused():
    with refused(ConfigError, "--simple-mode", "--set rollout.engine=vllm"):
        load_config(None, ["rollout.engine=vllm"], {"simple_mode": True})


def test_a_value_is_what_was_typed_and_no_toml():
    config = load_config(None, (), {**DATASET, "model": "true", "reward": ["1.py:f"]})
    assert (config.model.name_or_path, config.rewards.functions) == ("true", ("1.py:f",))


def test_the_actor_has_the_gpu_of_the_mode(file):
    apart = load_config(None, (), {"actor_gpu": "H100"}).compute.modal
    assert (apart.actor, apart.gpu) == ("H100", "A100-80GB")
    for flags, overrides in (
        ({"simple_mode": True}, []),
        ({}, ["compute.mode=single_node"]),
    ):
        together = load_config(None, overrides, {"actor_gpu": "H100", **flags}).compute.modal
        assert (together.actor, together.gpu) == ("A100-80GB", "H100")


def test_a_model_beside_one_that_would_be_built_is_refused(file):
    for flags, overrides in (
        ({"model": "some/model"}, []),
        ({}, ["model.name_or_path=some/model"]),
    ):
        with refused(ConfigError, "name_or_path = 'some/model'", "--set model={}"):
            load_config(file, overrides, flags)
    config = load_config(file, ["model={}"], {"model": "some/model"})
    assert (config.model.new, config.model.name_or_path) == (None, "some/model")


def test_without_a_file_programs_are_written_and_scored():
    data = load_config(None, ["data.shuffle=false"], {"max_samples": 4}).data
    assert (data.source, data.config) == ("OpenCoder-LLM/opc-sft-stage2", "educational_instruct")
    assert (data.prompt_column, data.max_samples, data.shuffle) == ("instruction", 4, False)
    assert load_config(None, (), {"reward": ["sandbox"]}).data.source == data.source


@pytest.mark.parametrize(("flags", "overrides"), [(DATASET, []), ({}, ["data.source=train.jsonl"])])
def test_a_dataset_that_is_named_has_none_of_the_defaults(flags, overrides):
    data = load_config(None, overrides, flags).data
    assert (data.source, data.config) == ("train.jsonl", None)
    assert (data.prompt_column, data.max_samples) == ("prompt", None)


@pytest.mark.parametrize(
    ("flags", "overrides"),
    [({"reward": ["r.py:f"]}, []), ({}, ["rewards.terms=[{type='exact'}]"])],
)
def test_a_reward_without_a_dataset_is_refused(flags, overrides):
    with refused(ConfigError, "--dataset"):
        load_config(None, overrides, flags)


def test_what_is_wrong_without_a_file_is_said_of_the_command_line():
    with refused(ConfigError, "the command line", "training.batch_size = 0"):
        load_config(None, (), {"batch_size": 0})
    with refused(ConfigError, "'data'", "section"):
        load_config(None, ["data=3"], DATASET)
    with refused(ConfigError, "data = 3"):
        load_config(None, ["data=3"], {})


def test_a_section_of_another_type_loses_what_that_type_does_not_know():
    curriculum = {"type": "curriculum", "column": "level", "pool": 3}
    stored = RunConfig.model_validate({"data": {"source": "a.jsonl"}, "selection": curriculum})
    everything = override_config(stored, ["selection.type=all"])
    assert everything.selection == RunConfig().selection
    screened = override_config(stored, ["selection.type=screen", "selection.first=2"])
    assert (screened.selection.type, screened.selection.first) == ("screen", 2)
    same = override_config(stored, ["selection.type=curriculum", "selection.pool=5"])
    assert same.selection.column == "level" and same.selection.pool == 5
    with pytest.raises(ConfigError, match="pool"):
        override_config(stored, ["selection.type=all", "selection.pool=5"])


@pytest.mark.parametrize("rounds, then", [({"max_rounds": 7}, 7), ({}, 9)])
def test_a_section_of_another_type_keeps_what_was_set_and_takes_its_own_defaults(rounds, then):
    values = {"selection": {"type": "dynamic", **rounds}, "training": {"num_generations": 8}}
    values |= {"data": {"source": "a.jsonl"}}
    as_stored = RunConfig.model_validate(RunConfig.model_validate(values).model_dump())
    assert override_config(as_stored, ["selection.type=screen"]).selection.max_rounds == then


def test_a_section_of_another_type_that_does_not_go_with_the_rest_is_refused():
    values = {"data": {"source": "a.jsonl"}, "training": {"num_generations": 4, "batch_size": 8}}
    with refused(ConfigError, "selection.first = 4"):
        override_config(RunConfig.model_validate(values), ["selection.type=screen"])


def test_a_section_of_a_type_of_ones_own_may_become_one_of_another():
    own = {"type": "mine.py:Selection", "foo": 3}
    stored = RunConfig.model_validate({"data": {"source": "a.jsonl"}, "selection": own})
    assert override_config(stored, ["selection.type=all"]).selection == RunConfig().selection
