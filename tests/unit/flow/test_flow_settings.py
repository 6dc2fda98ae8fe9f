"""What a flow run trains, and under which run id."""

from uuid import UUID, uuid4

import pytest

from mortal_flows.settings import run_id, run_name, settings
from mortal_steps.errors import ConfigError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.identity import write_identity
from mortal_steps.store import RunStore

# Made by Prefect's scheduler in one transaction.
NIGHTS = [
    UUID("01a1ffbe-5175-7d2f-8a8e-0a4c2f5d7b11"),
    UUID("01a1ffbe-517e-7ef6-9b1d-7c5e1f0a9c32"),
    UUID("01a1ffbe-517e-7a66-8c7a-55b6a4e0d753"),
]


def test_flow_runs_scheduled_at_once_are_runs_of_their_own():
    config = RunConfig(name="demo")
    prefix = config.id_prefix
    ids = {run_id(night, prefix) for night in NIGHTS}
    assert len(ids) == 3
    assert ids == {run_id(night, prefix) for night in NIGHTS}, "a Retry has to find its run"
    assert all(each.startswith("demo-") for each in ids)


def test_a_run_id_of_the_configuration_stays():
    assert settings(uuid4(), RunConfig(run_id="mine"), None, ()).run_id == "mine"


def test_overrides_change_the_configuration_of_a_deployment():
    deployed = RunConfig.model_validate({"name": "demo", "training": {"max_steps": 300}})
    chosen = settings(uuid4(), deployed, None, ["training.max_steps=20", "seed=3"])
    assert (chosen.name, chosen.seed, chosen.training.max_steps) == ("demo", 3, 20)


def test_a_file_goes_before_the_configuration_of_a_deployment(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n[training]\nbatch_size = 2\n')
    chosen = settings(uuid4(), RunConfig(name="demo"), str(file), ["training.max_steps=20"])
    assert (chosen.name, chosen.training.batch_size, chosen.training.max_steps) == ("mine", 2, 20)


def test_a_flow_run_goes_on_as_it_began_though_its_file_was_edited(tmp_path):
    file, flow_run_id = tmp_path / "nightly.toml", NIGHTS[0]
    text = f'name = "demo"\nruns_dir = "{tmp_path}"\n'
    file.write_text(text)
    begun = settings(flow_run_id, None, str(file), ())
    write_identity(RunStore(tmp_path / str(begun.run_id)), begun, [], [])
    for edited in (text + "[training]\nbatch_size = 2\n", text.replace("demo", "other")):
        file.write_text(edited)
        assert settings(flow_run_id, None, str(file), ()) == begun
    assert settings(NIGHTS[1], None, str(file), ()).name == "other", "the next night"
    (tmp_path / str(begun.run_id) / "run.json").write_text("{")
    damaged = {"config_file": str(file)}
    assert run_name(flow_run_id, damaged) == f"grpo/{flow_run_id}", "the flow says what it is"


def test_each_night_has_a_seed_of_its_own_and_a_retry_the_same(tmp_path):
    file = tmp_path / "nightly.toml"
    file.write_text(f'name = "demo"\nruns_dir = "{tmp_path}"\nseed = -1\n')
    first, second = (settings(night, None, str(file), ()).with_own_seed() for night in NIGHTS[:2])
    assert first.seed >= 0 and second.seed >= 0 and first.seed != second.seed
    write_identity(RunStore(tmp_path / str(first.run_id)), first, [], [])
    assert settings(NIGHTS[0], None, str(file), ()).with_own_seed() == first


@pytest.mark.parametrize(
    ("edited", "told"),
    [
        ("[training", "not valid TOML"),
        ('runs_dir = "{runs}"\nstep = 3\n', "step"),
        (None, "no such configuration file"),
    ],
)
def test_a_flow_run_goes_on_though_its_file_is_broken_or_gone(tmp_path, monkeypatch, edited, told):
    monkeypatch.chdir(tmp_path)
    file, runs = tmp_path / "nightly.toml", "elsewhere" if edited and "runs" in edited else "runs"
    file.write_text(f'name = "demo"\nruns_dir = "{runs}"\n')
    begun = settings(NIGHTS[0], None, str(file), ())
    write_identity(RunStore(tmp_path / runs / str(begun.run_id)), begun, [], [])
    file.unlink() if edited is None else file.write_text(edited.format(runs=runs))
    assert settings(NIGHTS[0], None, str(file), ()) == begun
    with pytest.raises(ConfigError, match=told):
        settings(NIGHTS[1], None, str(file), ())


@pytest.mark.parametrize(
    ("parameters", "told"),
    [
        ({}, "`config_file`"),
        ({"config_file": "missing.toml"}, "missing.toml"),
        ({"config": RunConfig(), "overrides": ["training.max_step=2"]}, "training.max_steps"),
        ({"config": RunConfig(), "overrides": ["seed"]}, "section.key=value"),
    ],
)
def test_parameters_that_make_no_configuration_are_named(parameters, told):
    given = {"config": None, "config_file": None, "overrides": (), **parameters}
    with pytest.raises(ConfigError, match=told):
        settings(uuid4(), **given)
    flow_run_id = uuid4()
    assert run_name(flow_run_id, parameters) == f"grpo/{flow_run_id}"


def test_a_flow_run_is_named_after_the_algorithm():
    for algorithm in ("grpo", "sft", "dpo"):
        config = RunConfig(run_id="mine", algorithm={"type": algorithm})
        assert run_name(uuid4(), {"config": config}) == f"{algorithm}/mine"
    own = RunConfig(run_id="mine", algorithm={"type": "module:Own"})
    assert run_name(uuid4(), {"config": own}) == "grpo/mine"
