"""What trackers are told, and what is known of them before they are imported."""

import json
import os

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.tracking import check_trackers
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.samples import Sample
from mortal_steps.report.trackers.base import COLUMNS, tracked_run
from mortal_steps.report.trackers.committed import CommittedSteps, entry_of, step_of_timing
from mortal_steps.report.trackers.table import TRACKERS
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from tests.support.run_info import run_info
from tests.support.tracked import with_wandb


@pytest.fixture
def run(tmp_path):
    run = Run(RunStore(tmp_path / "run"), RunConfig(), run_info(tmp_path))
    run.update(status="running")
    return run


def commit(run, step, **metrics):
    run.append("metrics.jsonl", {"step": step, "reward": step / 10, **metrics})
    run.update(step=step)


def told(committed, after=-1):
    return [entry.step for entry in committed.new(after=after)]


def test_an_entry_has_the_numbers_of_a_step_and_nothing_else():
    entry = entry_of(
        3,
        {"step": 3, "reward": None, "loss": 0.5, "state_id": "ab", "rewards/f/mean": 1},
        {"step": 3, "reward": 0.25},
        [
            {"step": 2, "stage": "generate", "busy_s": 1.0, "wait_s": 0.5},
            {"step": 2, "stage": "generate", "busy_s": 2.0, "wait_s": 0.0},
            {"step": 3, "stage": "evaluate", "busy_s": 4.0, "wait_s": 0.0},
        ],
    )
    assert entry.values == {
        "train/loss": 0.5,
        "train/rewards/f/mean": 1.0,
        "train/global_step": 3.0,
        "eval/reward": 0.25,
        "time/generate_s": 3.0,
        "time/generate_wait_s": 0.5,
        "time/evaluate_s": 4.0,
        "time/evaluate_wait_s": 0.0,
    }


def test_a_table_of_samples_holds_text_that_every_tracker_can_keep():
    sample = Sample(
        kind="best",
        step=1,
        problem_id="p",
        prompt=[{"role": "user", "content": "2+2="}],
        text="4\ud83d" + "x" * 5000,
        reward=1,
        rewards={},
    )
    ((kind, problem, prompt, text, reward),) = entry_of(1, None, None, samples=[sample]).samples
    assert len(COLUMNS) == 5 and (kind, problem, prompt, reward) == ("best", "p", "user: 2+2=", 1.0)
    assert text.startswith("4\\ud83d") and len(text) < 2100


@pytest.mark.parametrize(
    ("stage", "step"), [("generate", 5), ("train_step", 5), ("evaluate", 4), ("checkpoint", 4)]
)
def test_a_timing_is_told_with_the_step_that_it_was_committed_with(stage, step):
    assert step_of_timing({"stage": stage, "step": 4}) == step


def test_only_committed_steps_are_told_each_once_and_in_order(run):
    committed = CommittedSteps(run, 20)
    assert told(committed) == []
    run.append("evaluations.jsonl", {"step": 0, "reward": 0.0})
    commit(run, 1)
    commit(run, 2)
    run.append("metrics.jsonl", {"step": 3, "reward": 0.3})
    assert told(committed) == [0, 1, 2]
    assert told(committed, after=2) == []
    run.update(step=3)
    assert told(committed, after=2) == [3]
    assert told(CommittedSteps(run, 20), after=1) == [2, 3]


def test_two_steps_within_a_tick_of_the_clock_are_both_told(run):
    committed = CommittedSteps(run, 20)
    path = run.store.path("manifest.json")
    for step in (1, 2):
        commit(run, step)
        os.utime(path, ns=(0, 0))
        assert told(committed, after=step - 1) == [step]


def test_steps_that_a_run_takes_again_are_not_told_again(run):
    committed = CommittedSteps(run, 20)
    for step in (1, 2, 3):
        commit(run, step)
    assert told(committed) == [1, 2, 3]
    run.go_back_to(1)
    assert told(committed, after=3) == []
    for step in (2, 3, 4):
        commit(run, step)
    assert told(committed, after=3) == [4]


def test_a_log_that_is_made_again_in_mid_run_tells_no_step_twice(run):
    committed = CommittedSteps(run, 20)
    for step in (1, 2):
        commit(run, step)
    assert told(committed) == [1, 2]
    run.logs.replace("metrics.jsonl", [{"step": 1, "reward": 0.1}, {"step": 2, "reward": 0.2}])
    commit(run, 3)
    assert told(committed, after=2) == [3]


def test_a_run_has_one_name_in_a_tracker_and_shows_no_secrets(run):
    values = {"compute": {"local": {"actor": {"env": {"KEY": "hush"}}}}}
    config = RunConfig.model_validate({**values, "logging": {"tags": ["a"], "group": "g"}})
    tracked = tracked_run(run, config.model_dump(mode="json"))
    assert (tracked.id, tracked.name, tracked.project) == ("r-00000000", "r", "mortal")
    assert (tracked.group, tracked.tags) == ("g", ["a"])
    assert (
        "hush" not in json.dumps(tracked.config) and "actor" in tracked.config["compute"]["local"]
    )


def test_a_tracker_that_is_not_installed_is_named_with_what_to_do(monkeypatch):
    for name, kind in TRACKERS.items():
        monkeypatch.setattr("mortal_steps.orchestration.tracking.find_spec", lambda needs: None)
        with pytest.raises(ConfigError, match=f"has no {kind.needs}; `pip install '{name}>="):
            check_trackers([name])
    assert TRACKERS.entry("mine:Mine").factory == "mine:Mine"
    with pytest.raises(ConfigError, match="--to: 'wanbd' is not known; did you mean 'wandb'"):
        check_trackers(["wanbd"], "--to")


@pytest.mark.parametrize(
    ("written", "names"),
    [("wandb", ("wandb",)), ("none", ()), (["trackio", "wandb", "trackio"], ("trackio", "wandb"))],
)
def test_trackers_may_be_written_as_trl_has_them(written, names):
    assert RunConfig.model_validate({"logging": {"report_to": written}}).logging.report_to == names


def test_logging_keys_are_no_part_of_the_fingerprint():
    tracked = {"report_to": ["wandb"], "project": "p", "group": "g", "run_name": "n", "tags": ["t"]}
    other = RunConfig.model_validate({"logging": {**tracked, "sample_steps": 1}})
    assert other.fingerprint() == RunConfig().fingerprint()


def chosen_mode(environment):
    return with_wandb("mortal_steps.report.trackers.wandb").chosen_mode(environment)


@pytest.mark.parametrize(
    ("environment", "mode"),
    [
        ({}, "offline"),
        ({"WANDB_API_KEY": "k"}, "online"),
        ({"WANDB_API_KEY": "k", "WANDB_MODE": "offline"}, "offline"),
        ({"WANDB_MODE": "online"}, "online"),
        ({"WANDB_MODE": "disabled"}, "disabled"),
    ],
)
def test_wandb_is_online_where_there_is_a_key(tmp_path, environment, mode):
    assert chosen_mode({"NETRC": str(tmp_path / "none"), **environment}) == mode


def test_wandb_finds_a_key_in_netrc(tmp_path):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine api.wandb.ai login user password k\n")
    netrc.chmod(0o600)
    assert chosen_mode({"NETRC": str(netrc)}) == "online"
    assert chosen_mode({"NETRC": str(netrc), "WANDB_BASE_URL": "https://own"}) == "offline"
