"""Memory and time of a run that trains on the machine's CPU."""

import json

import pytest

from mortal_steps.config.gpus import GIB
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking import forecast as forecasts
from mortal_steps.orchestration.checking.forecast import BESIDE, PROCESS, forecast
from mortal_steps.orchestration.checking.forecast_lines import lines_of, report_forecast
from mortal_steps.orchestration.checking.resolve_defaults import resolve_defaults
from mortal_steps.orchestration.checking.room_on_gpus import warnings_of
from mortal_steps.orchestration.checking.step_time import (
    Rates,
    products_of,
    step_time,
    warnings_of_time,
)
from mortal_steps.orchestration.trials.opening import forecast_plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.cpu_rates import measure_rates
from tests.support.gpu_setups import LARGE, SMALL
from tests.support.made_up_gpus import SHAPES, let_there_be, several
from tests.support.refused import refused

MIB = 2**20
PROMPT = 26
SMOLLM2 = {
    "model_type": "llama",
    "hidden_size": 576,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
    "max_position_embeddings": 8192,
    "dtype": "float32",
}
"""SmolLM2-135M, with which runs were measured."""
CORE = Rates(training=130e9, prefill=130e9, decode=92e9)
"""What one core of the machine did on which they were."""


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    """A machine of 24 GiB without a GPU."""
    monkeypatch.chdir(SHAPES)
    let_there_be(monkeypatch, [])

    def has(total, free):
        monkeypatch.setattr(forecasts, "total_bytes", lambda: round(total * GIB))
        monkeypatch.setattr(forecasts, "available_bytes", lambda: round(free * GIB))

    has(24, 22)
    return has


@pytest.fixture
def sums(tmp_path):
    """Return the forecast of 4 problems with 8 completions of 12 tokens each."""
    (tmp_path / "config.json").write_text(json.dumps(SMOLLM2))

    def work_out(**training):
        sizes = {"batch_size": 4, "num_generations": 8, "max_completion_length": 12}
        values = {
            "model": {"name_or_path": str(tmp_path), "max_model_len": 128},
            "rollout": {"engine": "transformers", "max_tokens": 12, "num_rollout_workers": 1},
            "training": {**sizes, "gradient_checkpointing": False, **training},
            "compute": {"local": {"actor": {"threads": 1}}},
        }
        return forecast(forecast_plan(RunConfig.model_validate(values)), PROMPT)

    return work_out


def settled(name=SMALL, **tables):
    values = {"model": {"name_or_path": name}, "rollout": {"engine": "transformers"}} | tables
    return forecast(forecast_plan(resolve_defaults(RunConfig.model_validate(values))), PROMPT)


def test_the_memory_is_what_runs_with_a_real_model_took(sums):
    """Measured: 4,988 MiB with 32 completions; 2,439 with 8, and 4,088 beside a checkpoint."""
    (card,) = sums().cards()
    assert card.training.total / MIB == pytest.approx(4988, rel=0.09)
    assert card.copy == 3 * 4 * 134_515_008
    assert card.most == BESIDE + PROCESS + card.training.total + card.copy + sum(
        engine.reserved for engine in card.engines
    )
    (few,) = sums(batch_size=1).cards()
    assert few.training.total / MIB == pytest.approx(2439, rel=0.09)
    assert (few.training.total + few.copy) / MIB == pytest.approx(4088, rel=0.09)
    (engine,) = card.engines
    assert engine.reserved / MIB == pytest.approx(1050, rel=0.09)


def test_a_step_takes_as_long_as_it_did_with_a_real_model(sums):
    """Measured: 17.6 CPU seconds with 32 completions of 12 tokens, 7.7 with 8."""
    shortest = step_time(sums(), CORE).total
    assert shortest < 17.6 < 2 * shortest
    shortest = step_time(sums(batch_size=1), CORE).total
    assert shortest < 7.7 < 2 * shortest


def test_the_lines_say_memory_lengths_and_time(sums):
    lines = list(lines_of(sums(), CORE))
    assert lines[0] == "placement  actor on the CPU, 1 rollout worker on the CPU"
    assert lines[1].endswith("prompts of up to 26 tokens and completions of up to 12")
    assert "memory     this machine, 24.0 GiB" in lines
    (actor,) = [line for line in lines if line.startswith("  actor")]
    assert "a checkpoint's copy 1.5, the process 0.4 GiB (sequences of 38 tokens)" in actor
    assert [line for line in lines if line.startswith("  in all")] == ["  in all   7.8 GiB, 33%"]
    assert lines[-1].startswith("time       about 13 to 26 s a step with completions of full")


def test_a_machine_without_room_for_the_weights_is_refused():
    with refused(ConfigError, "24.0 GiB", "113.5 GiB"):
        warnings_of(settled(LARGE))
    with pytest.raises(ConfigError) as raised:
        warnings_of(settled(LARGE))
    assert "What fits: a machine with " in str(raised.value)
    assert "bfloat16" not in str(raised.value), "slower by far on most CPUs"


def test_a_machine_that_may_be_filled_is_warned_of_with_what_fits(machine):
    machine(22, 21)
    (warning,) = warnings_of(settled(training={"max_completion_length": 64}))
    assert warning.startswith("this machine, 22.0 GiB: the longest batch may take ")
    assert "What fits: rollout.num_rollout_workers = 1; or " in warning


def test_memory_that_others_use_is_told_of(machine, sums):
    machine(24, 6)
    (warning,) = warnings_of(sums())
    assert "the run may take 7.8 GiB, and 6.0 GiB are free now" in warning


def test_a_step_of_minutes_is_warned_of_with_and_without_a_measurement():
    slow = settled(training={"batch_size": 32, "max_completion_length": 1024})
    (warning,) = warnings_of_time(slow, CORE)
    assert "min on this CPU if its 128 completions become" in warning
    (guess,) = warnings_of_time(slow, None)
    assert "a step takes more than " in guess
    assert not warnings_of_time(settled(training={"max_completion_length": 16}), CORE)
    assert guess in report_forecast(slow, None)


def test_bfloat16_that_is_slower_than_float32_is_warned_of(sums):
    slow = Rates(training=30e9, prefill=30e9, decode=30e9, slowdown=4.4)
    (warning,) = warnings_of_time(sums(), slow)
    assert "in bfloat16 4.4 times slower than in float32 (measured)" in warning
    assert not warnings_of_time(sums(), CORE)


def test_bfloat16_is_measured_where_it_is_used(sums):
    products = products_of(sums())
    assert [each.dtype for each in products] == ["float32"] * 3
    assert (products[0].inner, products[0].columns, products[2].rows) == (576, 1536, 32)
    model = {"name_or_path": SMALL, "dtype": "bfloat16"}
    (actor, _, worker, *_) = products_of(sums(trl={"bf16": True}))
    assert (actor.dtype, worker.dtype) == ("bfloat16", "float32")
    found = [each.dtype for each in products_of(settled(model=model))]
    assert found == ["bfloat16", "bfloat16", "bfloat16", "float32", "bfloat16"]


def test_a_measured_rate_is_one_of_a_processor():
    (rate,) = measure_rates((products_of(settled())[0],))
    assert 1e8 < rate < 1e14


def test_on_gpus_no_time_is_estimated(monkeypatch, sums):
    let_there_be(monkeypatch, several(1))
    found = sums()
    assert not found.on_cpu and not warnings_of_time(found, None)
    assert "prompts of up to" not in "".join(lines_of(found))


def test_a_model_of_unknown_sizes_has_no_estimate(tmp_path):
    (tmp_path / "config.json").write_text('{"n_embd": 768}')
    found = settled(str(tmp_path))
    assert "memory     not known: config.json is not here, or uses other names" in lines_of(found)
    assert not warnings_of(found) and not warnings_of_time(found, None)
