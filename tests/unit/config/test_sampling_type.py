"""`rollout.dtype`: what it defaults to, and that a run keeps it."""

import pytest
from pydantic import ValidationError

from mortal_steps.orchestration.checking import resolve_defaults as defaults
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.system import gpus


def config(**tables):
    rollout = {"engine": "vllm", **tables.pop("rollout", {})}
    return RunConfig.model_validate({"model": {"new": {}}, "rollout": rollout, **tables})


@pytest.fixture
def on_gpus(monkeypatch):
    monkeypatch.setattr(defaults, "have_bfloat16", lambda found: True)


def test_without_gpus_it_is_the_models(monkeypatch):
    monkeypatch.setattr(gpus, "GPUS", ())
    for tables in ({}, {"rollout": {"dtype": "auto"}}):
        settled = defaults.resolve_defaults(config(**tables))
        assert (settled.rollout.dtype, Plan(settled).trainer.published_in) == (None, None)
        assert settled.sampled_model == settled.model
    assert not Plan(config(rollout={"engine": "transformers"})).trainer.corrects_importance


def test_on_gpus_float32_is_sampled_in_bfloat16(on_gpus, caplog):
    settled = defaults.resolve_defaults(config(rollout={"engine": "transformers"}))
    assert settled.rollout.dtype == settled.sampled_model.dtype == "bfloat16"
    assert settled.model.dtype == "float32"
    assert Plan(settled).trainer.corrects_importance
    assert "rollout.dtype = 'bfloat16'" in caplog.text
    assert settled.identity()["rollout"]["dtype"] == "bfloat16"


@pytest.mark.parametrize(
    ("tables", "dtype"),
    [
        ({"rollout": {"dtype": "float32"}}, "float32"),
        ({"rollout": {"dtype": "float16"}}, "float16"),
        ({"model": {"new": {}, "dtype": "bfloat16"}}, None),
        ({"training": {"trl": {"bf16": False}}}, None),
        ({"training": {"trl": {"fp16": True}}}, None),
        ({"rollout": {"engine": "plain_engine:PlainEngine"}}, None),
    ],
)
def test_what_is_chosen_and_what_is_not_autocast_stays(on_gpus, tables, dtype):
    assert defaults.resolve_defaults(config(**tables)).rollout.dtype == dtype


def test_a_run_keeps_what_it_began_with(on_gpus):
    begun = config()  # by an earlier version, on whatever machine
    assert defaults.resolved_like(config(), begun).rollout.dtype is None
    begun = defaults.resolve_defaults(config())
    assert (
        defaults.resolved_like(config(rollout={"dtype": "auto"}), begun).rollout.dtype == "bfloat16"
    )


@pytest.mark.parametrize(("gpu", "dtype"), [("A10G", "bfloat16"), ("T4", None), ("t4", None)])
def test_on_modal_the_gpus_decide(gpu, dtype):
    modal = {"backend": "modal", "modal": {"rollout": gpu}}
    assert defaults.resolve_defaults(config(compute=modal)).rollout.dtype == dtype


def test_another_type_is_refused():
    with pytest.raises(ValidationError, match=r"rollout\.dtype"):
        config(rollout={"dtype": "int8"})
