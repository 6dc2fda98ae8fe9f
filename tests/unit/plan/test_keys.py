"""Fingerprints, forks and TRL's options follow from the metadata of keys."""

import json
import math
from pathlib import Path

import pytest

from mortal_steps.config.field_metadata import (
    keys_of,
    shapes_state,
    trl_options_decided,
)
from mortal_steps.config.rewards import RewardsConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.resolve_defaults import resolved
from mortal_steps.plan.loader import dump_toml, load_config, parse_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.scores import reward_names, reward_weights
from tests.support.refused import refused

ROOT = Path(__file__).parents[3]

FINGERPRINTS = {
    "dc1a56ee1c97941d992ba7ac17d155440ac07a8dcee6ff220bb25abb04b93334": {},
    "e703343fa03dda4848684f98f53d7df6bdeef4a043493b64cf95824850d9df5d": {
        "rewards": {"functions": ["a.b:c"], "weights": [0.5]}
    },
    "3df9b1548d86241eff76f54d11007c4c7901b339d9e3a43389f5680c1a3dd6df": {
        "rewards": {"functions": ["a.b:c", "rewards.py:d"]}
    },
    "277551659e5cc1f47da6a5647910e90b11e50cca396638dfc049f9d55e4d411c": {
        "rollout": {
            "engine": "vllm",
            "top_k": 5,
            "stop": ["x"],
            "staleness": 1,
            "engine_options": {"seed": 1},
        }
    },
    "535b3d266b59ac39291bfeb67a4a47874fc7ef456f498a8d26c0af4611cf50ec": {
        "training": {
            "use_lora": True,
            "lora": {"r": 4},
            "epsilon_high": 0.3,
            "trl": {"optim": "sgd", "vllm_importance_sampling_clip_max": math.inf},
        }
    },
    "f511a7ede40a95e3b3063272b1f8e33b5faef836788b9499e2460a8fe7b23fae": {
        "seed": 3,
        "model": {"new": {"hidden_size": 32}, "warm_start": {"steps": 2}},
    },
    "6066b1478ca69caa6968728b9468a985f383547d4d268a6081cd9daf46fdb41c": {
        "data": {"source": "x.jsonl", "on_long": "drop"},
        "evaluation": {"eval_steps": 2},
    },
    "958983607ac3d37a7821f4745d7c48cd011921831aac53d973bf0008e215a058": {
        "name": "other",
        "runs_dir": "/x",
        "compute": {
            "backend": "modal",
            "local": {"actor": {"threads": 3, "env": {"A": "b"}}, "reward": {"threads": 2}},
        },
        "checkpoints": {"save_steps": 3},
        "logging": {"server_timeout_s": 7},
    },
}
"""Each of what it is of. Runs that have begun cannot go on where one of them changes."""


@pytest.mark.parametrize("fingerprint", FINGERPRINTS)
def test_fingerprints_are_what_they_were(fingerprint):
    assert parse_config(FINGERPRINTS[fingerprint]).fingerprint() == fingerprint


def test_the_fingerprints_of_a_settled_and_of_a_shipped_configuration_are_the_same_too():
    settled = resolved(RunConfig(), cores=2, commit="0" * 40, engine="vllm", context=512)
    assert settled.fingerprint() == (
        "c1a17a6a79a766c1af0b701564cb425adfb4c172bf191e5d773aa022a17d20dc"
    )
    assert load_config(ROOT / "deployments/configs/demo.toml").fingerprint() == (
        "ce4504f2d267d02c2e38e67b65121fe2cdc9bd879e9f508d2562510e4c6bad7b"
    )


NO_NUMBERS = (
    *("run_id", "runs_dir", "checkpoints.", "retention.", "logging.", "alerts."),
    *("compute.backend", "compute.mode", "compute.modal.", "compute.local.reward."),
    "compute.ray.",
    *("rewards.dry_run", "rewards.num_reward_workers", "rewards.timeout_s", "rewards.retries"),
    *("rewards.on_error", "rewards.credentials", "rewards.sandbox.", "rewards.accept_changed"),
    *("rollout.num_rollout_workers", "rollout.weight_sync", "rollout.canary_tolerance"),
    *("training.rank_timeout_s", "training.max_idle_steps", "training.until."),
    "rollout.sleep_while_training",
    *("environment.timeout_s", "environment.retries", "environment.on_error"),
    *("environment.python", "environment.type"),  # the kind of others is in theirs
    *(
        f"compute.local.{role}.{key}"
        for role in ("actor", "rollout")
        for key in ("python", "devices", "env")
    ),
)


@pytest.mark.parametrize(
    ("key", "in_checkpoints"),
    [
        ("run_id", False),
        ("compute.local.actor.threads", False),
        ("model.new.hidden_size", True),
        ("training.lora.r", True),
        ("training.beta", False),
        ("training.trl.warmup_steps", False),
        ("training.trl.optim", True),
        ("training.trl.model_init_kwargs.attn_implementation", True),
        ("rewards.functions", False),
        ("algorithm.type", True),
        ("algorithm.of_a_users_own", True),
        ("selection.column", False),
        ("selection.of_a_users_own", False),
        ("environment.id", False),
    ],
)
def test_keys_that_decide_what_a_checkpoint_contains_are_known(key, in_checkpoints):
    assert shapes_state(RunConfig, key) == in_checkpoints


def test_only_keys_that_decide_numbers_are_in_the_identity():
    identity = RunConfig(rewards={"functions": ["a:b"]}, algorithm={"type": "m:A", "x": 1})
    found = identity.identity()
    for key, _ in keys_of(RunConfig):
        value = found
        for part in key.split("."):
            value = value.get(part, "absent") if isinstance(value, dict) else "absent"
        optional = key.startswith(("model.new.", "model.warm_start."))  # tables that are not there
        expected = not key.startswith(NO_NUMBERS) and not optional
        assert (value != "absent") == expected, key
    assert found["algorithm"] == {"type": "m:A", "x": 1}


def test_where_an_object_is_kept_is_not_in_the_identity():
    """In a table of environments or a list of tools either, beside code that goes by its name."""

    def identity(folder):
        own = {"object": "a" * 64, "file": f"{folder}/environment-a.pickle", "modules": [folder]}
        return RunConfig(
            environment={"factory": {"own": own, "shop": "shop:Shop"}, "tools": ["a:b", own]}
        ).identity(defaults=False)["environment"]

    assert identity("here") == identity("there")
    assert identity("here") == {
        "factory": {"own": {"object": "a" * 64}, "shop": "shop:Shop"},
        "tools": ["a:b", {"object": "a" * 64}],
    }


def test_a_key_with_its_default_is_not_in_the_fingerprint():
    """So a key that a later version adds, with a default, changes none."""
    chosen = RunConfig(seed=3, training={"beta": 0.5}).identity(defaults=False)
    assert (chosen["seed"], chosen["training"]["beta"]) == (3, 0.5)
    assert not chosen.keys() & {"data", "model"}
    assert "learning_rate" not in chosen["training"]


def test_of_an_atropos_run_only_what_changes_its_numbers_is_in_the_fingerprint():
    def fingerprint(**options):
        return RunConfig(
            rollout={"source": "atropos", "source_options": options}, algorithm={"type": "atropos"}
        ).fingerprint()

    elsewhere = {"url": "http://other:8001", "port": 9002, "poll_s": 0.5}
    assert fingerprint(**elsewhere, wandb_project="p", wandb_group="g") == fingerprint()
    assert fingerprint(seq_len=2048) == fingerprint()
    assert fingerprint(seq_len=4096) != fingerprint()


def test_trl_options_name_the_keys_that_decide_them():
    decided = trl_options_decided(RunConfig)
    both = "training.batch_size and training.num_generations"
    assert decided["per_device_train_batch_size"] == f"{both} and training.ranks"
    assert decided["generation_batch_size"] == both
    assert decided["temperature"] == "rollout.temperature"
    with refused(ConfigError, "training.trl.loss_type", "training.loss_type"):
        parse_config({"training": {"trl": {"loss_type": "grpo"}}})


def test_functions_beside_terms_are_refused_and_their_long_form_is_named():
    with refused(ConfigError, "write all rewards in one", "{ type = 'function', function = 'fil"):
        parse_config({"rewards": {"functions": ["a:b"], "terms": [{"type": "exact"}]}})


def test_terms_are_the_long_form_of_functions_and_weights():
    short = RewardsConfig(functions=("a:b", "c.py:d"), weights=(1.0, 0.5))
    terms = [{"type": "function", "function": "a:b"}, {"function": "c.py:d", "weight": 0.5}]
    long = RewardsConfig(terms=terms)
    assert long.all_terms == short.all_terms
    named = RunConfig(rewards={"terms": [{**terms[0], "name": "right"}, terms[1]]})
    assert reward_names(named.rewards) == ("right", "d")
    assert reward_weights(named.rewards) == {"right": 1.0, "d": 0.5}
    assert named.fingerprint() != RunConfig(rewards=long).fingerprint()
    assert json.dumps(named.identity()["rewards"]["terms"])


def test_a_type_of_a_users_own_is_carried_with_its_settings(tmp_path):
    config = parse_config(
        {
            "rewards": {"terms": [{"type": "judge.py:Judge", "model": "big", "options": {"n": 3}}]},
            "algorithm": {"type": "mine:Mine", "kept": 2},
        }
    )
    (tmp_path / "c.toml").write_text(dump_toml(config))
    assert load_config(tmp_path / "c.toml") == config
    assert config.rewards.code == ("judge.py:Judge",)
    assert config.rewards.all_terms[0].model_extra == {"model": "big", "options": {"n": 3}}
    assert config.identity()["algorithm"] == {"type": "mine:Mine", "kept": 2}
    changed = parse_config({**config.model_dump(), "algorithm": {"type": "mine:Mine", "kept": 3}})
    assert changed.fingerprint() != config.fingerprint()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (
            {"rewards": {"terms": [{"type": "functoin"}]}},
            ["rewards.terms", "type = 'functoin'", "'function'"],
        ),
        ({"rewards": {"terms": [{"function": "a:b", "x": 1}]}}, ["rewards.terms.x", "unknown"]),
        ({"rewards": {"terms": [{"weight": 1}]}}, ["rewards.terms.function", "required"]),
        (
            {"rewards": {"functions": ["a:b"], "terms": [{"function": "a:b"}]}},
            ["rewards", "functions and weights", "terms"],
        ),
        (
            {"rewards": {"functions": ["a:b"], "weights": [1, 2]}},
            ["rewards", "weights", "2 numbers", "1 functions"],
        ),
        ({"algorithm": {"type": "gpo"}}, ["algorithm", "type = 'gpo'", "'grpo'"]),
        ({"algorithm": {"beta": 1}}, ["algorithm.beta", "unknown"]),
    ],
)
def test_what_no_kind_knows_is_named(values, told):
    with refused(ConfigError, *told):
        parse_config(values)


def test_a_kind_of_environments_is_in_the_identity():
    environment = {"type": "agent", "agent": "a.py:play"}
    found = RunConfig.model_validate({"environment": environment}).identity(defaults=False)
    assert found["environment"] == environment
