"""Opening a run: what was settled when it began holds wherever it goes on."""

from mortal_steps.errors import StoreError
from mortal_steps.orchestration.checking import preflight, resolve_defaults
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.bare_flow import project_config, unchecked
from tests.support.made_up_gpus import let_there_be, several
from tests.support.refused import refused
from tests.support.run_info import run_info


def test_a_run_keeps_the_threads_and_shards_that_it_began_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preflight, "check", unchecked)
    config = project_config(tmp_path)
    unset = config.model_dump()
    unset["compute"]["local"]["actor"]["threads"] = unset["rollout"]["num_shards"] = None
    unset["rollout"]["num_rollout_workers"] = 3
    config = type(config).model_validate(unset)
    monkeypatch.setattr(resolve_defaults, "_cores", lambda: 3)
    monkeypatch.setattr(resolve_defaults, "_is_small", lambda model: False)
    begun = open_run(config)
    monkeypatch.setattr(resolve_defaults, "_cores", lambda: 1)
    unset["rollout"]["num_rollout_workers"] = 1
    again = open_run(type(config).model_validate(unset))
    assert again.config.num_shards == begun.config.num_shards == 3
    threads = [each.config.compute.local.actor.threads for each in (begun, again)]
    assert threads == [3, 3]
    unset["compute"]["local"]["actor"]["threads"] = 1
    with refused(StoreError, "compute.local.actor.threads", "3", "now 1"):
        open_run(type(config).model_validate(unset))


def test_a_run_is_placed_anew_on_each_machine_and_keeps_what_decides_bits(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preflight, "check", unchecked)
    config = project_config(tmp_path)
    unset = config.model_dump()
    unset["rollout"]["num_shards"] = unset["rollout"]["num_rollout_workers"] = None
    config = type(config).model_validate(unset)
    let_there_be(monkeypatch, several(3))
    begun = open_run(config)
    local = begun.config.compute.local
    assert (local.actor.devices, local.rollout.devices) == (("0",), ("1", "2"))
    accumulation = begun.config.training.gradient_accumulation_steps
    assert (begun.config.num_shards, accumulation) == (2, config.training.rows // 8)
    recorded = (tmp_path / "runs" / "run" / "config.toml").read_text()
    assert f"gradient_accumulation_steps = {accumulation}" in recorded
    assert 'devices = ["0"]' not in recorded
    let_there_be(monkeypatch, [])
    again = open_run(config)
    assert again.config.compute.local.rollout.devices == ()
    assert again.config.num_shards == 2
    assert again.config.training.gradient_accumulation_steps == accumulation


def test_a_step_that_is_done_holds_nothing_of_killed_writes(tmp_path):
    run = Run(RunStore(tmp_path / "run"), RunConfig(), run_info(tmp_path))
    folders = [run.store.path(name) for name in ("steps/000000", "steps/000001")]
    for folder in (*folders, run.store.path("evaluations/000001")):
        folder.mkdir(parents=True)
        (folder / ".rewards-0.parquet.1a2b3c4d.partial").write_text("half")
    run.update(step=1)
    left = {path.parent for path in run.store.root.rglob(".rewards-*")}
    assert left == {run.store.path("steps/000001")}
