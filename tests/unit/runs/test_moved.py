"""A run directory that its owner renames or copies, or whose machine is not as it was."""

import asyncio
import shutil
import time

import pytest

from mortal_steps.compute.local_container import worker_environment
from mortal_steps.errors import ComputeError, RunNotFoundError
from mortal_steps.orchestration.driver import open_session
from mortal_steps.policy.ranks.world import NCCL
from mortal_steps.runs.manifest import RunManifest
from mortal_steps.runs.retention import what_may_go
from mortal_steps.runs.run import find_run, list_runs
from mortal_steps.system.rounding import decides_rounding
from tests.support.begun_runs import make_run
from tests.support.refused import refused


def test_a_run_has_the_name_of_its_folder(tmp_path):
    make_run(tmp_path, "begun")
    shutil.copytree(tmp_path / "begun", tmp_path / "copied")
    (tmp_path / "begun").rename(tmp_path / "renamed")
    assert [run.info.run_id for run in list_runs(tmp_path)] == ["copied", "renamed"]


def test_of_many_runs_an_error_names_the_last_ones(tmp_path):
    make_run(tmp_path, "run")
    for number in range(24):
        shutil.copytree(tmp_path / "run", tmp_path / f"run-{number:02d}")
    with refused(RunNotFoundError, "5 older", "run-04", "run-23"):
        find_run(tmp_path, "missing")


def test_a_run_that_ended_while_the_clock_was_wrong_is_not_old(tmp_path):
    store = make_run(tmp_path, "run")
    store.write_record("manifest.json", RunManifest(status="stopped", updated_at=0.0), RunManifest)
    runs = list_runs(tmp_path)
    going, _ = what_may_go(runs, now=time.time(), keep_days=30, protected=())
    assert going == []


def workers_of(run):
    """The specs that the run's workers are started with."""
    taken = {}

    def local(specs, **options):
        taken.update(specs)
        raise ComputeError("enough")

    async def begin():
        async with open_session(run, local=local):
            pass

    with pytest.raises(ComputeError, match="enough"):
        asyncio.run(begin())
    return taken


@pytest.mark.parametrize("role", ["actor", "rollout", "reward"])
def test_workers_round_as_in_the_environment_that_the_run_began_in(
    tmp_path, monkeypatch, caplog, role
):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    make_run(tmp_path, "run")
    monkeypatch.delenv("ATEN_CPU_CAPABILITY")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    environment = worker_environment(workers_of(find_run(tmp_path, "run"))[role], {})
    assert environment["ATEN_CPU_CAPABILITY"] == "avx2"
    assert "MKL_CBWR" not in environment
    assert "ATEN_CPU_CAPABILITY was avx2, now not there" in caplog.text
    assert "MKL_CBWR was not there, now COMPATIBLE" in caplog.text


@pytest.mark.parametrize(
    ("name", "decides"),
    [
        ("VLLM_BATCH_INVARIANT", True),
        ("VLLM_USE_FLASHINFER_SAMPLER", True),
        ("VLLM_ENABLE_INDUCTOR_MAX_AUTOTUNE", True),
        ("VLLM_USE_V2_MODEL_RUNNER", True),
        ("TORCHINDUCTOR_MAX_AUTOTUNE", True),
        ("TRITON_F32_DEFAULT", True),
        *((name, True) for name in NCCL),
        ("NCCL_MIN_NCHANNELS", True),
        ("NCCL_DEBUG", False),
        ("TORCHINDUCTOR_CACHE_DIR", False),
        ("TRITON_CACHE_DIR", False),
        ("TRITON_HOME", False),
        ("PYTORCH_CUDA_ALLOC_CONF", False),
        ("VLLM_LOGGING_LEVEL", False),
    ],
)
def test_variables_that_choose_kernels_are_kept_and_folders_are_not(name, decides):
    assert decides_rounding(name) == decides


def test_an_earlier_run_has_the_environment_as_it_is(tmp_path, monkeypatch, caplog):
    store = make_run(tmp_path, "run")
    run = find_run(tmp_path, "run")
    assert run.info.rounding == {}
    older = type(run.info)(
        **{name: getattr(run.info, name) for name in run.info.__slots__ if name != "rounding"}
    )
    store.write_record("run.json", older, type(older))
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    specs = workers_of(find_run(tmp_path, "run"))
    assert worker_environment(specs["actor"], {})["MKL_CBWR"] == "COMPATIBLE"
    assert "MKL_CBWR" not in caplog.text
