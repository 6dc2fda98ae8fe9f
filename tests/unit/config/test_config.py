"""The configuration: every shipped file loads, mistakes are named, defaults are the documented."""

import math
from typing import Any

import pytest

from mortal_steps.compute.modal.prices import dollars_per_second
from mortal_steps.config import RunConfig
from mortal_steps.config.loader import dump_toml, load_config, parse_config
from mortal_steps.config.reference import reference_toml
from mortal_steps.errors import ConfigError
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
    assert (rollout.weight_sync, rollout.sync_weights_every) == ("reload", 1)
    assert config.checkpoints.save_steps == 100
    assert (compute.modal.actor, compute.modal.rollout, compute.modal.gpu) == (
        "A100",
        "A10G",
        "A100",
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
            {"compute": {"modal": {"gpu": "H100"}}},
            r"compute: .*modal.gpu does nothing where compute.mode is 'distributed'; set actor and",
        ),
        (
            {"compute": {"mode": "single_node", "modal": {"actor": "H100"}}},
            r"compute: .*modal.actor does nothing where .* is 'single_node'; set modal.gpu",
        ),
        (
            {"compute": {"mode": "single_node", "modal": {"vllm_mode": "server"}}},
            r"compute.modal: .*vllm_mode = 'server' gives .* set gpu = 'A100:2', or vllm_mode",
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
            {"training": {"trl": {"steps_per_generation": 5}}},
            r"32 rows do not divide into 5 micro-batches",
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
            r"'direct' shares memory of one machine.*use one of 'reload', 'volume', 'checkpoint'",
        ),
        (
            {"rollout": {"weight_sync": "direct", "source": "replay:Replay"}},
            r"'direct' is for rollouts that the run's own workers sample.*'replay:Replay'",
        ),
        ({"runs_dir": "a\0b"}, r"runs_dir = .*: holds a NUL character"),
        ({"run_id": "../up"}, r"run_id = '../up'"),
        ({"seed": -1}, r"seed = -1"),
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


def test_the_fingerprint_is_of_numbers_not_of_places():
    begun = RunConfig().settled(cores=2)
    same = [
        {"runs_dir": "/elsewhere"},
        {"run_id": "x"},
        {"rollout": {"num_rollout_workers": 7}},
        {"rollout": {"num_shards": 2}},  # what the default came to
        {"compute": {"local": {"actor": {"threads": 2}, "reward": {"threads": 5}}}},
        {"rewards": {"timeout_s": 1, "retries": 0, "on_error": "mask", "dry_run": False}},
        {"rewards": {"num_reward_workers": 7}},
    ]
    for values in same:
        assert parse_config(values).settled_like(begun).fingerprint() == begun.fingerprint()
    others: list[dict[str, Any]] = [
        {"seed": 1},
        {"rollout": {"num_shards": 3}},
        {"training": {"beta": 0.1}},
        {"compute": {"local": {"actor": {"threads": 1}}}},
        {"compute": {"local": {"rollout": {"threads": 2}}}},
    ]
    for values in others:
        assert parse_config(values).settled_like(begun).fingerprint() != begun.fingerprint()


@pytest.mark.parametrize(
    ("values", "cores", "shards", "threads"),
    [
        ({}, 1, 2, (1, 1, 1)),
        ({}, 2, 2, (2, 1, 1)),
        ({"rollout": {"num_rollout_workers": 3}}, 64, 3, (4, 1, 1)),
        ({"rollout": {"num_rollout_workers": 9}, "training": {"batch_size": 4}}, 2, 4, (2, 1, 1)),
        ({"rollout": {"staleness": 1, "num_shards": 5}}, 2, 5, (1, 1, 1)),
        ({"compute": {"mode": "single_node"}}, 2, 1, (2, 1, 1)),
        (
            {"compute": {"local": {"actor": {"threads": 7}, "rollout": {"threads": 3}}}},
            2,
            2,
            (7, 3, 1),
        ),
    ],
)
def test_what_defaults_to_the_machine_is_settled_when_a_run_begins(values, cores, shards, threads):
    config = parse_config(values).settled(cores=cores)
    local = config.compute.local
    assert config.rollout.num_shards == shards
    assert (local.actor.threads, local.rollout.threads, local.reward.threads) == threads
    assert config.settled(cores=cores + 1) == config
    assert RunConfig().settled_like(config).compute.local == local


@pytest.mark.parametrize(
    ("engine", "published"),
    [("vllm", "adapter"), ("transformers", "adapter"), ("engines:Own", "merged")],
)
def test_what_a_lora_run_publishes_is_settled_when_it_begins(engine, published):
    config = parse_config({"rollout": {"engine": engine}, "training": {"use_lora": True}})
    begun = config.settled(cores=2)
    assert begun.training.lora.publish == published
    assert begun.training.publishes_adapter == (published == "adapter")
    assert config.settled_like(begun) == begun
    assert "publish" not in RunConfig().settled(cores=2).identity()["training"]["lora"]


def test_a_lora_run_that_began_without_a_word_of_it_publishes_whole_models():
    """Its recorded configuration has no such key, and its fingerprint knows of none."""
    config = parse_config({"training": {"use_lora": True}})
    assert not config.training.publishes_adapter
    begun = parse_config({"training": {"use_lora": True}, "rollout": {"engine": "transformers"}})
    again = config.settled_like(begun)
    assert not again.training.publishes_adapter
    assert again.training.lora.publish is None
    assert "publish" not in again.identity()["training"]["lora"]


def test_room_is_made_for_adapters_where_they_travel():
    lora = {"use_lora": True, "lora": {"r": 17}}
    config = parse_config({"rollout": {"engine": "vllm"}, "training": lora}).settled(cores=2)
    asked = config.with_room_for_adapters().rollout.engine_options
    assert asked == {
        "enable_lora": True,
        "max_loras": 1,
        "max_cpu_loras": 2,
        "max_lora_rank": 32,
    }
    wider = {"engine": "vllm", "engine_options": {"max_lora_rank": 64}}
    config = parse_config({"rollout": wider, "training": lora}).settled(cores=2)
    assert config.with_room_for_adapters().rollout.engine_options["max_lora_rank"] == 64
    merged = {**lora, "lora": {"publish": "merged"}}
    config = parse_config({"rollout": {"engine": "vllm"}, "training": merged}).settled(cores=2)
    assert config.with_room_for_adapters() == config


def test_engine_and_max_tokens_are_settled_when_a_run_begins():
    settled = RunConfig().settled(cores=2, engine="vllm", context=32768)
    assert (settled.rollout.engine, settled.rollout.max_tokens) == ("vllm", 1024)
    assert settled.corrects_importance
    settled = RunConfig().settled(cores=2, engine="transformers", context=512)
    assert (settled.rollout.engine, settled.rollout.max_tokens) == ("transformers", 256)
    assert RunConfig().settled_like(settled).rollout == settled.rollout
    chosen = {"engine": "vllm", "max_tokens": 8000}  # also what older runs have in config.toml
    before = parse_config({"rollout": chosen}).settled(cores=2, context=512)
    assert {key: getattr(before.rollout, key) for key in chosen} == chosen
    assert RunConfig().settled_like(before).fingerprint() == before.fingerprint()


def test_runs_begun_without_the_key_on_long_keep_their_fingerprint():
    assert "on_long" not in RunConfig().identity()["data"]
    assert parse_config({"data": {"on_long": "drop"}}).identity()["data"]["on_long"] == "drop"


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
