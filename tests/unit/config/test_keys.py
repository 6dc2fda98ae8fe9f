"""Each key says what it affects: fingerprints, forks and TRL's options follow from that."""

import json
import math
from pathlib import Path

import pytest

from mortal_steps.config import RunConfig
from mortal_steps.config.algorithm import ALGORITHMS
from mortal_steps.config.keys import affected_by, keys_of, trl_options_decided, unmarked_keys
from mortal_steps.config.kinds import named_class
from mortal_steps.config.loader import dump_toml, load_config, load_stored_config, parse_config
from mortal_steps.config.marks import Affects
from mortal_steps.config.rewards import KINDS, RewardsConfig
from mortal_steps.config.section import Section
from mortal_steps.errors import ConfigError
from mortal_steps.scores import reward_names, reward_weights

ROOT = Path(__file__).parents[3]

FINGERPRINTS = {
    "9ee4693cad4077cc05473802ec437c1393f08f09cb7f8708a156e98d8a5e2388": {},
    "4de6381402cc7910b77c82078d9f4010f0acf4e2a794ccbb43c8b4d7f400d83a": {
        "rewards": {"functions": ["a.b:c"], "weights": [0.5]}
    },
    "750dbeed85875a19c2db9193b468857846685b7470bd01c20fc17f78ef58d7c8": {
        "rewards": {"functions": ["a.b:c", "rewards.py:d"]}
    },
    "a308c1c44419eee7a4fa3d1a244c82c4510d00443b21718e1b79dd3bb93d7d5d": {
        "rollout": {
            "engine": "vllm",
            "top_k": 5,
            "stop": ["x"],
            "staleness": 1,
            "engine_options": {"seed": 1},
        }
    },
    "be182f51f626e0abcfc4759c0bc88b9942cd594f3a097182096eff782c748003": {
        "training": {
            "use_lora": True,
            "lora": {"r": 4},
            "epsilon_high": 0.3,
            "trl": {"optim": "sgd", "vllm_importance_sampling_clip_max": math.inf},
        }
    },
    "42ae0feaec07d647299e2956d3c65d945350748a265d8a760f3e1ce77980b9c0": {
        "seed": 3,
        "model": {"new": {"hidden_size": 32}, "warm_start": {"steps": 2}},
    },
    "d6424ec8fcd54cc887b4f1ae286f80deb21ea36a44509865151837d8708acf9d": {
        "data": {"source": "x.jsonl", "on_long": "drop"},
        "evaluation": {"eval_steps": 2},
    },
    "11574c3319bc904c913e56492a3fe71839a0416603cf41638e9ac555748614ab": {
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

LATER = {
    "data.eval_sets",
    "data.on_long",
    "evaluation.functions",
    "model.quantization",
    "rewards.terms",
    "rollout.dtype",
    "rollout.seeds",
    "rollout.source",
    "rollout.source_options",
    "training.deterministic",
    "training.lora.peft",
    "training.lora.publish",
}
"""Keys that are part of a fingerprint only where they say something."""

OLD = """
[rollout]
weight_sync_method = "volume"
[rewards]
functions = ["a.b:c"]
rehearse = false
[compute]
mode = "single_node"
[compute.modal]
deadline_s = 60.0
gpu = "A100:2"
vllm_mode = "serve"
[logging]
server_patience_s = 5.0
artifact_steps = 2
use_wandb = false
wandb_project = "mine"
"""


@pytest.mark.parametrize("fingerprint", FINGERPRINTS)
def test_fingerprints_are_what_they_were(fingerprint):
    assert parse_config(FINGERPRINTS[fingerprint]).fingerprint() == fingerprint


def test_the_fingerprints_of_a_settled_and_of_a_shipped_configuration_are_the_same_too():
    settled = RunConfig().settled(cores=2, commit="0" * 40, engine="vllm", context=512)
    assert settled.fingerprint() == (
        "c5a2388b3070ba4e535b3f9232156d588c0bf8006509e27208543370e79e7b97"
    )
    assert load_config(ROOT / "deployments/configs/demo.toml").fingerprint() == (
        "93bc84ef41bdefd7393bc5c872b0cb754925b5a54408e7907dd46f90542b5623"
    )


def test_every_key_says_what_it_affects():
    assert list(unmarked_keys(RunConfig)) == []
    for registry in (KINDS, ALGORITHMS):
        for spec in registry.values():
            assert list(unmarked_keys(named_class(spec))) == [], spec


def test_a_key_that_says_nothing_is_found_and_counts_as_affecting_anything():
    class Careless(Section):
        key: int = 1

    class Whole(Section):
        inner: Careless = Careless()

    assert list(unmarked_keys(Whole)) == ["inner.key"]
    assert affected_by(Whole, "inner.key") == ~Affects.NOTHING


@pytest.mark.parametrize(
    ("key", "affects"),
    [
        ("run_id", Affects.NOTHING),
        ("compute.modal.rates", Affects.NOTHING),
        ("compute.local.actor.threads", Affects.TRAINING),
        ("compute.local.rollout.threads", Affects.SAMPLING),
        ("compute.local.reward.threads", Affects.NOTHING),
        ("compute.local.actor.env", Affects.NOTHING),
        ("compute.local.actor", Affects.TRAINING),
        ("model.new.hidden_size", Affects.SAMPLING | Affects.STATE),
        ("training.trl.warmup_steps", Affects.TRAINING),
        (
            "training.trl.chat_template_kwargs.enable_thinking",
            Affects.SAMPLING | Affects.TRAINING,
        ),
        ("rewards.functions", Affects.SCORES),
    ],
)
def test_a_key_affects_what_it_and_its_tables_say(key, affects):
    assert affected_by(RunConfig, key) == affects


def test_only_keys_that_affect_something_are_in_the_identity():
    identity = RunConfig(rewards={"functions": ["a:b"]}, algorithm={"type": "m:A", "x": 1})
    found = identity.identity()
    for key, _ in keys_of(RunConfig):
        value = found
        for part in key.split("."):
            value = value.get(part, "absent") if isinstance(value, dict) else "absent"
        later = key in LATER
        optional = key.startswith(("model.new.", "model.warm_start."))  # tables that are not there
        expected = affected_by(RunConfig, key) and not later and not optional
        assert (value != "absent") == bool(expected), key
    assert found["algorithm"] == {"type": "m:A", "x": 1}


def test_trl_options_name_the_keys_that_decide_them():
    decided = trl_options_decided(RunConfig)
    both = "training.batch_size and training.num_generations"
    assert decided["per_device_train_batch_size"] == both
    assert decided["generation_batch_size"] == both
    assert decided["temperature"] == "rollout.temperature"
    with pytest.raises(ConfigError, match=r"training\.trl\.loss_type is set by training\.loss_ty"):
        parse_config({"training": {"trl": {"loss_type": "grpo"}}})


def test_old_keys_are_told_the_new_ones(tmp_path):
    (tmp_path / "mine.toml").write_text(OLD)
    with pytest.raises(ConfigError) as caught:
        load_config(tmp_path / "mine.toml")
    said = str(caught.value)
    for sentence in (
        "rollout.weight_sync_method is now rollout.weight_sync;",
        "rewards.rehearse is now rewards.dry_run;",
        "compute.modal.deadline_s is now compute.modal.call_timeout_s;",
        "logging.server_patience_s is now logging.server_timeout_s;",
        "logging.use_wandb: write logging.report_to = ['wandb']",
        "logging.wandb_project: write logging.project",
        "logging.artifact_steps: the report is written after evaluations",
    ):
        assert sentence in said
    with pytest.raises(ConfigError, match=r"rewards\.rehearse is now rewards\.dry_run"):
        load_config(ROOT / "deployments/configs/demo.toml", ["rewards.rehearse=false"])


def test_a_configuration_that_earlier_code_wrote_is_read(tmp_path):
    (tmp_path / "config.toml").write_text(OLD)
    config = load_stored_config(tmp_path / "config.toml")
    assert config.rollout.weight_sync == "volume"
    assert config.rewards.dry_run is False
    assert (config.compute.modal.call_timeout_s, config.compute.modal.vllm_mode) == (60.0, "server")
    assert config.logging.server_timeout_s == 5.0
    (tmp_path / "config.toml").write_text(dump_toml(config))
    assert load_config(tmp_path / "config.toml") == config
    with pytest.raises(ConfigError, match=r"rewards\.rehearse is now"):
        load_stored_config(tmp_path / "config.toml", ["rewards.rehearse=true"])


def test_parameters_of_a_flow_run_that_began_earlier_are_read():
    began = {"rewards": {"functions": ["a:b"], "rehearse": False}, "logging": {"use_wandb": False}}
    assert RunConfig.model_validate(began).rewards.dry_run is False


def test_terms_are_the_long_form_of_functions_and_weights():
    short = RewardsConfig(functions=("a:b", "c.py:d"), weights=(1.0, 0.5))
    terms = [{"type": "function", "function": "a:b"}, {"function": "c.py:d", "weight": 0.5}]
    long = RewardsConfig(terms=terms)
    assert long.all_terms == short.all_terms
    assert RunConfig(rewards=long).fingerprint() == RunConfig(rewards=short).fingerprint()
    plain = RunConfig(rewards={"functions": ["a:b"]})
    assert RunConfig(rewards={"terms": terms[:1]}).fingerprint() == plain.fingerprint()
    named = RunConfig(rewards={"terms": [{**terms[0], "name": "right"}, terms[1]]})
    assert reward_names(named) == ("right", "d")
    assert reward_weights(named) == {"right": 1.0, "d": 0.5}
    assert named.fingerprint() != RunConfig(rewards=short).fingerprint()
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
    ("values", "message"),
    [
        (
            {"rewards": {"terms": [{"type": "functoin"}]}},
            r"rewards\.terms: type = 'functoin' .* did you mean 'function'\?",
        ),
        ({"rewards": {"terms": [{"function": "a:b", "x": 1}]}}, r"rewards\.terms\.x: unknown key"),
        ({"rewards": {"terms": [{"weight": 1}]}}, r"rewards\.terms\.function = .*required"),
        (
            {"rewards": {"functions": ["a:b"], "terms": [{"function": "a:b"}]}},
            r"rewards: functions and weights are the short form of terms",
        ),
        (
            {"rewards": {"functions": ["a:b"], "weights": [1, 2]}},
            r"rewards: weights has 2 numbers for 1 functions",
        ),
        ({"algorithm": {"type": "gpo"}}, r"algorithm: type = 'gpo' .* did you mean 'grpo'\?"),
        ({"algorithm": {"beta": 1}}, r"algorithm\.beta: unknown key"),
    ],
)
def test_what_no_kind_knows_is_named(values, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(values)
