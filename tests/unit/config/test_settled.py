"""What is settled when a run begins, and the fingerprint that a run keeps."""

import logging
from typing import Any

import pytest

from mortal_steps.compute import interpreters
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.checks import check_adapter
from mortal_steps.orchestration.checking.resolve_defaults import (
    resolve_defaults,
    resolved,
    resolved_like,
)
from mortal_steps.orchestration.open_run import changes
from mortal_steps.places.base import place_of
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from tests.support.made_up_gpus import let_there_be, several
from tests.support.refused import refused


def test_what_was_edited_is_named_though_a_default_of_the_run_does_not_go_with_it():
    eight = {"training": {"batch_size": 8, "num_generations": 4}}
    begun = resolved(parse_config(eight), cores=2, on_gpu=True)
    assert begun.training.gradient_accumulation_steps == 4
    assert not changes(begun, parse_config(eight))
    edited = {"training": {"batch_size": 3, "num_generations": 3}}
    found = changes(begun, parse_config(edited))
    assert "training.batch_size was 8, now 3" in found
    assert not any("None" in each for each in found)


def test_no_evaluation_is_the_same_run_whether_it_is_said_or_follows_from_the_data():
    never, default = {"evaluation": {"eval_steps": 0}}, RunConfig()
    assert parse_config(never).fingerprint() == default.fingerprint()
    held_out = {"data": {"eval_samples": 2}}
    assert parse_config({**never, **held_out}).fingerprint() != parse_config(held_out).fingerprint()


def test_the_fingerprint_is_of_numbers_not_of_places():
    begun = resolved(RunConfig(), cores=2)
    same = [
        {"runs_dir": "/elsewhere"},
        {"run_id": "x"},
        {"rollout": {"num_rollout_workers": 7}},
        {"rollout": {"weight_sync": "volume", "canary_tolerance": 0.5}},
        {"rollout": {"num_shards": 2}},  # what the default came to
        {"compute": {"local": {"actor": {"threads": 2}, "reward": {"threads": 5}}}},
        {"rewards": {"timeout_s": 1, "retries": 0, "on_error": "mask", "dry_run": False}},
        {"rewards": {"num_reward_workers": 7}},
    ]
    for values in same:
        assert resolved_like(parse_config(values), begun).fingerprint() == begun.fingerprint()
    others: list[dict[str, Any]] = [
        {"seed": 1},
        {"rollout": {"num_shards": 3}},
        {"training": {"beta": 0.1}},
        {"compute": {"local": {"actor": {"threads": 1}}}},
        {"compute": {"local": {"rollout": {"threads": 2}}}},
    ]
    for values in others:
        assert resolved_like(parse_config(values), begun).fingerprint() != begun.fingerprint()


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
    config = resolved(parse_config(values), cores=cores)
    local = config.compute.local
    assert config.rollout.num_shards == shards
    assert (local.actor.threads, local.rollout.threads, local.reward.threads) == threads
    assert resolved(config, cores=cores + 1) == config
    assert resolved_like(RunConfig(), config).compute.local == local


@pytest.mark.parametrize(
    ("engine", "published"),
    [("vllm", "adapter"), ("transformers", "adapter"), ("engines:Own", "merged")],
)
def test_what_a_lora_run_publishes_is_settled_when_it_begins(engine, published):
    config = parse_config({"rollout": {"engine": engine}, "training": {"use_lora": True}})
    begun = resolved(config, cores=2)
    assert begun.training.lora.publish == published
    assert begun.training.publishes_adapter == (published == "adapter")
    assert resolved_like(config, begun) == begun


@pytest.mark.parametrize("engine", ["transformers", "vllm"])
@pytest.mark.parametrize(
    ("training", "model", "published"),
    [
        ({}, {}, "adapter"),
        ({"peft": {"use_rslora": True, "bias": "none", "use_dora": False}}, {}, "adapter"),
        ({"peft": {"init_lora_weights": "gaussian"}}, {}, "adapter"),
        ({"peft": {"exclude_modules": ["k_proj"], "layers_to_transform": 1}}, {}, "adapter"),
        ({"peft": {"use_dora": True}}, {}, "merged"),
        ({"peft": {"bias": "all"}}, {}, "merged"),
        ({"peft": {"modules_to_save": ["norm"]}}, {}, "merged"),
        ({"peft": {"init_lora_weights": "pissa"}}, {}, "merged"),
        ({"peft": {"rank_pattern": {"q_proj": 4}}}, {}, "merged"),
        ({"peft": {"an_option_of_tomorrow": 1}}, {}, "merged"),
        ({}, {"quantization": {"load_in_4bit": True}}, "merged"),
    ],
)
def test_what_engines_cannot_compute_beside_a_base_is_merged(engine, training, model, published):
    lora: dict[str, Any] = {"training": {"use_lora": True, "lora": training}, "model": model}
    settled = resolved(parse_config({**lora, "rollout": {"engine": engine}}), cores=2)
    assert settled.training.lora.publish == published
    check_adapter(settled.rollout, settled.training, settled.only_merged)
    lora["training"]["lora"] = {**training, "publish": "adapter"}
    if published == "merged":
        with refused(ConfigError, 'training.lora.publish = "adapter"'):
            asked = parse_config({**lora, "rollout": {"engine": engine}})
            check_adapter(asked.rollout, asked.training, asked.only_merged)


def test_room_is_made_for_adapters_where_they_travel():
    lora = {"use_lora": True, "lora": {"r": 17}}
    config = resolved(parse_config({"rollout": {"engine": "vllm"}, "training": lora}), cores=2)
    asked = Plan(config).sampler.rollout.engine_options
    assert asked == {
        "enable_lora": True,
        "max_loras": 1,
        "max_cpu_loras": 2,
        "max_lora_rank": 32,
    }
    wider = {"engine": "vllm", "engine_options": {"max_lora_rank": 64}}
    config = resolved(parse_config({"rollout": wider, "training": lora}), cores=2)
    assert Plan(config).sampler.rollout.engine_options["max_lora_rank"] == 64
    merged = {**lora, "lora": {"publish": "merged"}}
    config = resolved(parse_config({"rollout": {"engine": "vllm"}, "training": merged}), cores=2)
    assert Plan(config).sampler.rollout == config.rollout


def test_engine_and_max_tokens_are_settled_when_a_run_begins():
    settled = resolved(RunConfig(), cores=2, engine="vllm", context=32768)
    assert (settled.rollout.engine, settled.rollout.max_tokens) == ("vllm", 1024)
    assert Plan(settled).trainer.corrects_importance
    settled = resolved(RunConfig(), cores=2, engine="transformers", context=512)
    assert (settled.rollout.engine, settled.rollout.max_tokens) == ("transformers", 256)
    assert resolved_like(RunConfig(), settled).rollout == settled.rollout
    chosen = {"engine": "vllm", "max_tokens": 8000}
    before = resolved(parse_config({"rollout": chosen}), cores=2, context=512)
    assert {key: getattr(before.rollout, key) for key in chosen} == chosen
    assert resolved_like(RunConfig(), before).fingerprint() == before.fingerprint()


def test_a_run_goes_on_with_the_rest_of_a_curriculum_with_which_it_began():
    """One that an earlier version began has none, whatever new runs have."""
    config = parse_config({"selection": {"type": "curriculum"}})
    begun = resolved(config, cores=2)
    assert begun.selection.rest == 0.5 and resolved_like(config, begun) == begun
    asked = parse_config({"selection": {"type": "curriculum", "rest": 0.0}})
    assert resolved(asked, cores=2).selection.rest == 0.0
    earlier = begun.model_copy(update={"selection": config.selection})
    assert resolved_like(config, earlier) == earlier and not changes(earlier, config)
    assert "rest" not in earlier.identity(defaults=False)["selection"]
    assert changes(earlier, asked) == ["selection.rest was None, now 0.0"]
    assert changes(begun, asked) == ["selection.rest was 0.5, now 0.0"]
    asked = parse_config({"selection": {"type": "curriculum", "rest": 0.5}})
    assert changes(earlier, asked) == ["selection.rest was None, now 0.5"]
    assert "selection.type was 'all', now 'curriculum'" in changes(RunConfig(), config)


def test_sandboxes_for_environments_that_there_are_none_of_are_told_of(caplog):
    compute = {"backend": "modal", "modal": {"environment": {}}}
    place_of(Plan(parse_config({"model": {"new": {}}, "compute": compute})).place).check(
        samples=True
    )
    assert "[compute.modal.environment] has no effect" in caplog.text


@pytest.fixture
def logged(tmp_path, caplog, monkeypatch):
    """Return the warnings about the defaults of a run with these settings."""
    (tmp_path / "config.json").write_text('{"max_position_embeddings": 128}')

    def settle(gpus=(), **tables):
        let_there_be(monkeypatch, list(gpus))
        caplog.clear()
        values = {"model": {"name_or_path": str(tmp_path)}, **tables}
        with caplog.at_level(logging.INFO):
            resolve_defaults(RunConfig.model_validate(values))
        warned = [each for each in caplog.records if each.levelno >= logging.WARNING]
        return [each.getMessage() for each in warned]

    return settle


def test_what_is_usual_is_no_warning(logged, caplog, monkeypatch):
    monkeypatch.setattr(interpreters, "lacks", lambda python, module: True)
    assert logged() == []
    noted = caplog.text
    assert "does not have vllm" in noted and "rollout.max_tokens = 64, half" in noted
    assert "rollout.engine = 'transformers'" in " ".join(logged(gpus=several(1)))
    (warned,) = logged(training={"max_completion_length": 100})
    assert "training.max_completion_length would allow 100" in warned
