"""`mortal doctor`: what is well, what is a warning, what keeps runs from working."""

from types import SimpleNamespace

import pytest

from mortal.maintenance import doctor
from mortal_steps.sandbox.levels import Level

GB = 10**9


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("MORTAL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(doctor, "reached_level", lambda: Level(way="user", reason=""))
    return tmp_path


def test_a_machine_without_a_server_is_well(state, capsys):
    assert doctor.examine(state / "runs")
    told = capsys.readouterr().out
    assert "  ok       packages: the " in told
    assert "  ok       sandbox: programs that a model wrote run isolated" in told
    assert "  ok       server: none runs" in told


def test_it_names_the_server_in_use_and_that_of_a_profile_which_is_not(state, monkeypatch, capsys):
    monkeypatch.setenv("PREFECT_HOME", str(state))
    profile = 'active = "mine"\n[profiles.mine]\nPREFECT_API_URL = "http://mine:4200/api"\n'
    (state / "profiles.toml").write_text(profile)
    doctor.examine(state / "runs")
    told = capsys.readouterr().out
    assert "  warning  profile: your Prefect profile 'mine' names the server" in told
    assert "set the environment variable PREFECT_API_URL=http://mine:4200/api" in told
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    doctor.examine(state / "runs")
    told = capsys.readouterr().out
    assert "  ok       server: http://127.0.0.1:9/api is used (PREFECT_API_URL)" in told
    assert "profile" not in told


def test_a_server_that_does_not_answer_is_a_problem(state, monkeypatch, capsys):
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert not doctor.examine(state / "runs")
    assert "  problem  server: PREFECT_API_URL = http://127.0.0.1:9/api does not answer" in (
        capsys.readouterr().out
    )


def test_a_package_of_another_version_is_named(monkeypatch):
    wanted = ["pydantic>=999", "no-such-package", "typer", "uv<0; extra == 'dev'"]
    monkeypatch.setattr(doctor.metadata, "requires", lambda name: wanted)
    found = doctor.packages()
    assert found.level == "problem"
    assert "pydantic is 2" in found.word and "no-such-package is missing" in found.word
    assert "typer" not in found.word and "uv" not in found.word


def test_a_gpu_that_torch_is_not_built_for_is_a_warning():
    levels = [
        doctor.torch_and_gpus(cuda, gpus).level
        for cuda, gpus in [(None, []), (None, ["NVIDIA H100"]), ("12.8", ["NVIDIA H100"])]
    ]
    assert levels == ["ok", "warning", "ok"]


def test_a_gpu_whose_driver_is_too_old_is_a_problem():
    old = "torch 2.13.0: The NVIDIA driver on your system is too old (found version 12020)"
    found = doctor.torch_and_gpus("13.0", ["NVIDIA A10"], old)
    assert (found.level, found.word) == ("problem", f"NVIDIA A10, which cannot be used: {old}")


@pytest.mark.parametrize(("free", "level"), [(20, "ok"), (5, "warning"), (0.5, "problem")])
def test_a_disk_that_is_nearly_full_is_told(tmp_path, monkeypatch, free, level):
    use = SimpleNamespace(free=int(free * GB))
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda place: use)
    (found,) = doctor.disks({"runs": tmp_path / "not" / "there", "temp": tmp_path})
    assert found.level == level
    assert "free for runs, temp" in found.word


def test_only_problems_change_the_exit_code(state, monkeypatch):
    for found, well in [(doctor.warning("a", "b"), True), (doctor.problem("a", "b"), False)]:
        monkeypatch.setattr(doctor, "_findings", lambda runs_dir, found=found: iter([found]))
        assert doctor.examine(state) is well


def test_a_machine_that_cannot_shut_programs_in_is_warned_of_with_a_remedy():
    found = doctor.sandbox(Level(way="bare", reason="there is no bubblewrap"))
    assert (found.level, found.what) == ("warning", "sandbox")
    assert "there is no bubblewrap; rewards that run them are refused. Install" in found.word
    assert doctor.sandbox(Level(way="user", reason="")).level == "ok"
