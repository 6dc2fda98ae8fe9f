"""The configuration: every shipped file loads, mistakes are named, defaults are the documented."""

import math

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.meter import dollars_per_second
from mortal_steps.plan.loader import dump_toml, load_config, parse_config, read_toml
from mortal_steps.plan.reference import reference_toml
from mortal_steps.plan.run_config import RunConfig
from tests.support.paths import ROOT
from tests.support.refused import refused

SHIPPED = [
    path
    for folder in ("deployments/configs", "examples")
    for path in sorted(ROOT.glob(f"{folder}/**/*.toml"))
    if "stages" not in read_toml(path)
]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_shipped_configurations_load(path):
    config = load_config(path)
    for source in (config.data.source, config.data.eval_source):
        assert source is None or ":" in source or (ROOT / source).is_file()
    assert config.rewards.all_terms


def test_a_resolved_configuration_reads_back_the_same(tmp_path):
    for path in SHIPPED:
        config = load_config(path)
        (tmp_path / "copy.toml").write_text(dump_toml(config))
        copy = load_config(tmp_path / "copy.toml")
        assert copy == config
        assert copy.fingerprint() == config.fingerprint()


def test_the_reference_is_a_configuration_of_defaults(tmp_path):
    (tmp_path / "all.toml").write_text(reference_toml())
    assert load_config(tmp_path / "all.toml") == RunConfig()
    assert reference_toml("training.lora").startswith("[training.lora]\n# Rank of")
    with refused(ConfigError, "'zzz'", "checkpoints, compute"):
        reference_toml("zzz")


def test_documented_defaults():
    config = RunConfig()
    training, rollout, compute = config.training, config.rollout, config.compute
    assert config.model.name_or_path == "Qwen/Qwen2.5-0.5B-Instruct"
    assert config.model.max_model_len == 16384
    assert (training.num_generations, training.batch_size) == (4, 8)
    assert training.learning_rate == 5e-6
    assert (training.max_steps, training.num_epochs) == (-1, 5)
    assert (training.loss_type, training.beta, training.epsilon) == ("dapo", 0.0, 0.2)
    assert training.scale_rewards == "group"
    assert training.max_completion_length == 1024
    assert (training.use_lora, training.gradient_checkpointing) == (False, True)
    assert (rollout.engine, rollout.max_tokens) == (None, None)
    assert (config.max_tokens, config.num_rollout_workers) == (1024, 2)
    assert (rollout.weight_sync, rollout.sync_weights_every) == (None, 1)
    assert config.checkpoints.save_steps == 100
    assert (compute.modal.actor, compute.modal.rollout, compute.modal.gpu) == (
        "A100-80GB",
        "A10G",
        "A100-80GB",
    )
    assert (compute.mode, compute.modal.vllm_mode) == ("distributed", "colocate")


MISTAKES = [
    ({"training": {"learnig_rate": 1e-5}}, "training.learnig_rate", "training.learning_rate"),
    ({"learning_rate": 1e-5}, "learning_rate: ", "training.learning_rate"),
    ({"trainig": {}}, "trainig: ", "mean training?"),
    ({"compute": {"modal": {"rates": {"A10G:2": 0.1}}}}, "compute.modal.rates", "'A10G:2': 0.1"),
    ({"compute": {"modal": {"rates": {"A1": 0.1}}}}, "compute.modal.rates", "'A1'", "mean A10"),
    (
        {"compute": {"mode": "single_node", "modal": {"vllm_mode": "server"}}},
        *("compute.modal", "vllm_mode = 'server'", "gpu = 'A100-80GB:2'"),
    ),
    (
        {"compute": {"mode": "single_node"}, "rollout": {"num_rollout_workers": 3}},
        *("num_rollout_workers = 3", "compute.mode = 'single_node'", "leave it out"),
    ),
    ({"data": {"zzz": 1}}, "data.zzz: ", "source, config"),
    ({"training": {"loss_type": "ppo"}}, "training.loss_type = 'ppo'", "'grpo'"),
    ({"training": {"batch_size": 0}}, "training.batch_size = 0", "equal to 1"),
    ({"training": {"max_steps": 0}}, "training.max_steps = 0", "at least 1", "-1"),
    (
        {"training": {"batch_size": 3, "gradient_accumulation_steps": 8}},
        *("12 rows", "8 micro-batches", "divides 12, such as 6"),
    ),
    ({"training": {"ranks": 3}}, "ranks = 3", "32 rows"),
    ({"training": {"trl": {"steps_per_generation": 5}}}, "32 rows", "such as 4"),
    (
        {"training": {"trl": {"steps_per_generation": 0}}},
        *("trl.steps_per_generation = 0", "at least 1"),
    ),
    (
        {"training": {"gradient_accumulation_steps": 4, "trl": {"steps_per_generation": 2}}},
        *("optimizer update", "two batches"),
    ),
    ({"training": {"trl": {"temperature": 0.7}}}, "trl.temperature", "rollout.temperature"),
    (
        {"training": {"max_grad_norm": 1.0}},
        "training.max_grad_norm: ",
        "training.trl.max_grad_norm",
    ),
    ({"training": {"temperature": 0.7}}, "training.temperature: ", "rollout.temperature"),
    ({"rollout": {"stop": "END"}}, "rollout.stop = 'END'", '["END"]'),
    ({"temperature": 0.7}, "temperature: ", "rollout.temperature"),
    ({"training": {"learning_rate": math.inf}}, "training.learning_rate = inf", "finite"),
    ({"rewards": {"weights": [math.nan]}}, "rewards.weights = nan", "finite"),
    ({"rollout": {"canary_tolerance": math.nan}}, "rollout.canary_tolerance = nan", "finite"),
    (
        {"training": {"trl": {"optim_args": {"x": [math.nan]}}}},
        "training.trl",
        "optim_args.x = nan",
    ),
    (
        {"training": {"trl": {"max_grad_norm": None}}},
        "training.trl",
        "max_grad_norm",
        "leave it out",
    ),
    ({"rollout": {"engine_options": {"seed": None}}}, "rollout.engine_options", "seed", "leave it"),
    ({"data": {"options": {"size": math.nan}}}, "data.options", "size = nan"),
    (
        {"compute": {"local": {"actor": {"env": {"A=B": "c"}}}}},
        *("compute.local.actor.env", "'A=B' = 'c'"),
    ),
    ({"compute": {"local": {"reward": {"env": {"A": "\0"}}}}}, "compute.local.reward.env", "'A'"),
    (
        {"rollout": {"weight_sync": "direct"}, "compute": {"backend": "modal"}},
        *("rollout.weight_sync = 'direct'", "'modal'", "'reload', 'volume', 'checkpoint'"),
    ),
    (
        {"rollout": {"weight_sync": "direct", "source": "replay:Replay"}},
        *("rollout.weight_sync = 'direct'", "'replay:Replay'", "'reload', 'volume', 'checkpoint'"),
    ),
    (
        {"rollout": {"sleep_while_training": True, "staleness": 1}},
        *("rollout.sleep_while_training = true", "rollout.staleness = 1"),
    ),
    (
        {"rollout": {"sleep_while_training": True}, "compute": {"backend": "modal"}},
        *("rollout.sleep_while_training = true", "'modal'", "leave it out"),
    ),
    (
        {"rollout": {"sleep_while_training": True, "source": "replay:Replay"}},
        *("rollout.sleep_while_training = true", "'replay:Replay'", "leave it out"),
    ),
    (
        {"training": {"trl": {"vllm_enable_sleep_mode": True}}},
        *("training.trl.vllm_enable_sleep_mode", "rollout.sleep_while_training"),
    ),
    ({"runs_dir": "a\0b"}, "runs_dir = ", "NUL"),
    ({"run_id": "../up"}, "run_id = '../up'", "letters, digits"),
    ({"seed": -2}, "seed = -2", "-1"),
    ({"rewards": {"timeout_s": 0}}, "rewards.timeout_s = 0", "greater than 0"),
    ({"rewards": {"on_error": "zero"}}, "rewards.on_error = 'zero'", "'raise' or 'mask'"),
    (
        {"evaluation": {"num_generations": 4}},
        "num_generations = 4 with temperature = 0",
        "set evaluation.temperature",
    ),
]
"""Values, and what their refusal tells: key, value, remedy."""


@pytest.mark.parametrize(("values", "told"), [(values, told) for values, *told in MISTAKES])
def test_mistakes_are_named(values, told):
    with refused(ConfigError, *told):
        parse_config(values)


def test_a_single_reward_function_needs_no_brackets():
    assert parse_config({"rewards": {"functions": "x.py:f"}}).rewards.functions == ("x.py:f",)


def test_overrides(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("[training]\nbatch_size = 4\n")
    config = load_config(
        path,
        [
            "training.batch_size=16",
            "rollout.engine=transformers",
            "training.trl.adam_beta2=0.99",
            'rollout.stop=["a", "b"]',
            "data.source=it's.jsonl",
        ],
    )
    assert config.training.batch_size == 16
    assert config.rollout.engine == "transformers"
    assert config.training.trl == {"adam_beta2": 0.99}
    assert config.rollout.stop == ("a", "b")
    assert config.data.source == "it's.jsonl"


@pytest.mark.parametrize("override", ["training.batch_size", "=4", "training..x=1"])
def test_a_malformed_override_is_explained(tmp_path, override):
    path = tmp_path / "c.toml"
    path.write_text("")
    with refused(ConfigError, "section.key=value"):
        load_config(path, [override])


def test_unreadable_files(tmp_path):
    with refused(ConfigError, "none.toml"):
        load_config(tmp_path / "none.toml")
    with refused(ConfigError, str(tmp_path), "folder"):
        load_config(tmp_path)
    (tmp_path / "bad.toml").write_text("a = = 1")
    with refused(ConfigError, "bad.toml", "TOML"):
        load_config(tmp_path / "bad.toml")


def test_a_file_of_a_windows_editor_is_read(tmp_path):
    path = tmp_path / "c.toml"
    path.write_bytes(b"\xef\xbb\xbfseed = 7\r\n[training]\r\nmax_steps = 3\r\n")
    config = load_config(path)
    assert (config.seed, config.training.max_steps) == (7, 3)


def test_the_home_folder_may_be_written_as_a_tilde(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    places = {role: {"python": "~/py"} for role in ("actor", "rollout", "reward")}
    config = parse_config(
        {"runs_dir": "~/runs", "model": {"name_or_path": "~/model"}, "compute": {"local": places}}
    )
    assert (config.runs_dir, config.model.name_or_path) == ("/home/me/runs", "/home/me/model")
    local = config.compute.local
    assert {local.actor.python, local.rollout.python, local.reward.python} == {"/home/me/py"}


def test_options_for_a_library_may_be_infinite(tmp_path):
    config = parse_config({"training": {"trl": {"vllm_importance_sampling_clip_max": math.inf}}})
    (tmp_path / "c.toml").write_text(dump_toml(config))
    assert load_config(tmp_path / "c.toml") == config


def test_own_prices_count_however_the_gpu_is_spelt():
    assert dollars_per_second("A10", {"A10G": 0.5}) == 0.5
    assert dollars_per_second("a10g:2", {"A10": 0.5}) == 1.0
