"""The configuration: every shipped file loads, mistakes are named, defaults are the documented."""

import math

import pytest

from mortal_steps.config import RunConfig
from mortal_steps.config.loader import dump_toml, load_config, parse_config
from mortal_steps.config.reference import reference_toml
from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.meter import dollars_per_second
from tests.support.paths import ROOT

SHIPPED = sorted(ROOT.glob("deployments/configs/*.toml")) + sorted(ROOT.glob("examples/**/*.toml"))


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
    with pytest.raises(ConfigError, match=r"'zzz'.*checkpoints, compute"):
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {"training": {"learnig_rate": 1e-5}},
            r"training.learnig_rate: unknown key; did you mean training.learning_rate\?",
        ),
        ({"learning_rate": 1e-5}, r"unknown key; did you mean training.learning_rate\?"),
        ({"trainig": {}}, r"trainig: unknown key; did you mean training\?"),
        (
            {"compute": {"modal": {"rates": {"A10G:2": 0.1}}}},
            r"compute.modal.rates: .*'A10G:2': 0.1 is no price per second of one GPU",
        ),
        ({"compute": {"modal": {"rates": {"A1": 0.1}}}}, "rates: .*has no GPU 'A1'; did you mean"),
        (
            {"compute": {"mode": "single_node", "modal": {"vllm_mode": "server"}}},
            r"compute.modal: .*vllm_mode = 'server' gives .* set gpu = 'A100-80GB:2', or vllm_mode",
        ),
        (
            {"compute": {"mode": "single_node"}, "rollout": {"num_rollout_workers": 3}},
            r"num_rollout_workers = 3, and compute.mode = 'single_node' has one; leave it out",
        ),
        ({"data": {"zzz": 1}}, r"data.zzz: unknown key; known keys here: source, config"),
        ({"training": {"loss_type": "ppo"}}, r"training.loss_type = 'ppo': .*'grpo'"),
        ({"training": {"batch_size": 0}}, r"training.batch_size = 0: .*greater than or equal"),
        ({"training": {"max_steps": 0}}, r"training.max_steps = 0: must be at least 1, or -1"),
        (
            {"training": {"batch_size": 3, "gradient_accumulation_steps": 8}},
            r"12 rows do not divide into 8 micro-batches; TRL would silently drop 4",
        ),
        (
            {"training": {"ranks": 3}},
            r"ranks = 3 does not divide the 32 rows of a micro-batch",
        ),
        (
            {"training": {"trl": {"steps_per_generation": 5}}},
            r"32 rows do not divide into 5 micro-batches",
        ),
        (
            {"training": {"trl": {"steps_per_generation": 0}}},
            r"trl.steps_per_generation = 0 must be a whole number of at least 1",
        ),
        (
            {"training": {"gradient_accumulation_steps": 4, "trl": {"steps_per_generation": 2}}},
            "an optimizer update would reach over two batches",
        ),
        (
            {"training": {"trl": {"temperature": 0.7}}},
            r"trl.temperature is set by rollout.temperature; use that",
        ),
        (
            {"training": {"max_grad_norm": 1.0}},
            r"training.max_grad_norm: unknown key; an option .* training.trl.max_grad_norm$",
        ),
        (
            {"training": {"temperature": 0.7}},
            r"training.temperature: unknown key; TRL's temperature is set by rollout.temperature$",
        ),
        ({"rollout": {"stop": "END"}}, r"rollout.stop = 'END': write a list: \[\"END\"\]"),
        ({"temperature": 0.7}, r"unknown key; did you mean rollout.temperature\?"),
        ({"training": {"learning_rate": math.inf}}, r"learning_rate = inf: .* finite number"),
        ({"rewards": {"weights": [math.nan]}}, r"rewards.weights = nan: .* finite number"),
        ({"rollout": {"canary_tolerance": math.nan}}, r"rollout.canary_tolerance = nan"),
        (
            {"training": {"trl": {"optim_args": {"x": [math.nan]}}}},
            r"training.trl: optim_args.x = nan is not a number",
        ),
        ({"training": {"trl": {"max_grad_norm": None}}}, r"training.trl: max_grad_norm has no val"),
        ({"rollout": {"engine_options": {"seed": None}}}, r"rollout.engine_options: seed has no"),
        ({"data": {"options": {"size": math.nan}}}, r"data.options: size = nan is not a number"),
        (
            {"compute": {"local": {"actor": {"env": {"A=B": "c"}}}}},
            r"compute.local.actor.env: 'A=B' = 'c' cannot be an environment variable",
        ),
        (
            {"compute": {"local": {"reward": {"env": {"A": "\0"}}}}},
            r"compute.local.reward.env: 'A'",
        ),
        (
            {"rollout": {"weight_sync": "direct"}, "compute": {"backend": "modal"}},
            r"'direct' is for workers on one machine.*use one of 'reload', 'volume', 'checkpoint'",
        ),
        (
            {"rollout": {"weight_sync": "direct", "source": "replay:Replay"}},
            r"'direct' is for rollouts that the run's own workers sample.*'replay:Replay'",
        ),
        (
            {"rollout": {"sleep_while_training": True, "staleness": 1}},
            r"sleep_while_training = true .* with rollout.staleness = 1 they sample meanwhile",
        ),
        (
            {"rollout": {"sleep_while_training": True}, "compute": {"backend": "modal"}},
            r"sleep_while_training = true is for workers on one machine",
        ),
        (
            {"rollout": {"sleep_while_training": True, "source": "replay:Replay"}},
            r"sleep_while_training = true is for rollouts .* 'replay:Replay'",
        ),
        (
            {"training": {"trl": {"vllm_enable_sleep_mode": True}}},
            r"vllm_enable_sleep_mode is set by rollout.sleep_while_training",
        ),
        ({"runs_dir": "a\0b"}, r"runs_dir = .*: holds a NUL character"),
        ({"run_id": "../up"}, r"run_id = '../up'"),
        ({"seed": -2}, r"seed = -2"),
        ({"rewards": {"weights": [float("nan")]}}, r"rewards.weights.* = nan: .*finite number"),
        ({"training": {"learning_rate": float("inf")}}, r"learning_rate = inf: .*finite number"),
        ({"rewards": {"timeout_s": 0}}, r"rewards.timeout_s = 0: .*greater than 0"),
        ({"rewards": {"on_error": "zero"}}, r"rewards.on_error = 'zero': .*'raise' or 'mask'"),
    ],
)
def test_mistakes_are_named(values, message):
    with pytest.raises(ConfigError, match=message):
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
    with pytest.raises(ConfigError, match=r"write it as section.key=value"):
        load_config(path, [override])


def test_unreadable_files(tmp_path):
    with pytest.raises(ConfigError, match="no such configuration file"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="is a folder"):
        load_config(tmp_path)
    (tmp_path / "bad.toml").write_text("a = = 1")
    with pytest.raises(ConfigError, match="is not valid TOML"):
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
