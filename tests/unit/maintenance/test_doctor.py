"""`mortal doctor`: what is well, what is a warning, what keeps runs from working."""

from types import SimpleNamespace
from uuid import uuid4

import pytest

from mortal.maintenance import doctor, problem, warning
from mortal.server.recovery import CRASHED, Deployed, Recovery, definitions
from mortal_steps.sandbox.levels import Level

GB = 10**9


@pytest.fixture
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("MORTAL_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setattr(doctor, "reached_level", lambda: Level(way="user", reason=""))
    return tmp_path


@pytest.fixture(scope="module")
def server():
    from mortal.maintenance import server

    return server


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


FILES = "prefect.server.concurrency.lease_storage.filesystem"


def settings(*, buffer="P30D", ordering="mortal.server.ordering"):
    """Of a server, as its API tells them."""
    return {
        "server": {
            "events": {"expired_bucket_buffer": buffer, "causal_ordering": ordering},
            "concurrency": {"lease_storage": FILES},
        }
    }


def test_what_a_server_forgets_over_a_restart_is_a_warning(server):
    assert server.memory(settings()).level == "ok"
    assert "BUCKET_BUFFER=P30D" in server.memory(settings(buffer="P1D")).word
    prefects = settings(ordering="prefect.server.events.ordering.memory")
    assert "CAUSAL_ORDERING=mortal.server.ordering" in server.memory(prefects).word
    told = settings()
    told["server"]["concurrency"]["lease_storage"] = FILES.replace("filesystem", "memory")
    assert f"give it PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE={FILES}" in server.memory(told).word


RECOVERY = Recovery(silence_s=90, pause_s=20, attempts=5)


def deployed(name, heartbeat_s=30):
    return Deployed(name=f"grpo-train/{name}", id=uuid4(), heartbeat_s=heartbeat_s)


def test_automations_that_are_missing_or_switched_off_are_told(server):
    one = deployed("one")
    made = definitions([one], RECOVERY)
    assert server.automations(made, [one]).level == "ok"
    assert "some are not there" in server.automations(made[:2], [one]).word
    made[1].enabled = False
    assert f"switched off: {CRASHED}" in server.automations(made, [one]).word


def test_a_deployment_that_is_not_watched_for_silence_is_told_with_what_to_do(server):
    old, new, rare = deployed("old"), deployed("new"), deployed("rare", heartbeat_s=180)
    found = server.automations(definitions([old], RECOVERY), [old, new])
    assert found.level == "warning"
    assert found.word.endswith("noticed in runs of grpo-train/new; `mortal automate`")
    none = server.automations(definitions([], RECOVERY), [rare])
    assert "set PREFECT_FLOWS_HEARTBEAT_FREQUENCY = 30 in the env" in none.word


def test_another_version_of_prefect_is_a_warning(server):
    assert server.version("http://x/api", "3.8.9", "3.8.8").level == "warning"
    assert server.version("http://x/api", "3.8.8", "3.8.8").level == "ok"


def test_only_problems_change_the_exit_code(state, monkeypatch):
    for found, well in [(warning("a", "b"), True), (problem("a", "b"), False)]:
        monkeypatch.setattr(doctor, "_findings", lambda runs_dir, found=found: iter([found]))
        assert doctor.examine(state) is well


def test_a_machine_that_cannot_shut_programs_in_is_warned_of_with_a_remedy():
    found = doctor.sandbox(Level(way="bare", reason="there is no bubblewrap"))
    assert (found.level, found.what) == ("warning", "sandbox")
    assert "there is no bubblewrap; rewards that run them are refused. Install" in found.word
    assert doctor.sandbox(Level(way="user", reason="")).level == "ok"
