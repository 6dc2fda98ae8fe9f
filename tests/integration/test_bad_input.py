"""Every mistake a user can make is named, with the value and the remedy, before anything starts."""

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mortal_steps.config import NewModelConfig
from mortal_steps.data.problem_files import dataset_fingerprint, open_problems
from mortal_steps.errors import (
    ConfigError,
    DataError,
    ModelError,
    MortalError,
    RewardError,
    StoreError,
)
from mortal_steps.orchestration.checking import preflight
from mortal_steps.orchestration.checking.resolve_defaults import resolved
from mortal_steps.orchestration.open_run import open_run
from mortal_steps.plan.loader import load_config, parse_config
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.report.alerts import note_warnings
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.notices import read_notices
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from tests.support.bare_flow import unchecked
from tests.support.project import write_project

SURROUNDINGS = {
    "WORLD_SIZE": ("2", "WORLD_SIZE = '2' .* one of several .* unset WORLD_SIZE, RANK"),
    "ACCELERATE_USE_FSDP": ("true", "ACCELERATE_USE_FSDP = 'true'.* unset ACCELERATE_USE_FSDP"),
}

BAD_REWARDS = """
import time

def wrong_length(completions, **kwargs):
    return [1.0] * (len(completions) + 1)

def not_a_number(completions, **kwargs):
    return [float("nan") for _ in completions]

def a_string(completions, **kwargs):
    return ["good" for _ in completions]

def no_list(completions, **kwargs):
    return 1.0

def raises(completions, **kwargs):
    return [1 / 0 for _ in completions]

def hangs(completions, **kwargs):
    time.sleep(600)

not_callable = 3
"""


def write_long_rows(folder: Path) -> None:
    """The project's rows and two whose prompts leave no room for a completion."""
    rows = [json.dumps({"prompt": "a" * length, "answer": "a"}) + "\n" for length in (61, 59)]
    (folder / "long.jsonl").write_text((folder / "train.jsonl").read_text() + "".join(rows))


@pytest.fixture
def refusal(tmp_path, monkeypatch):
    """Opens a run of the tiny project with overrides; returns the error's message."""
    write_project(tmp_path)
    (tmp_path / "bad.py").write_text(BAD_REWARDS)
    (tmp_path / "broken.py").write_text("import no_such_module_at_all\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "columns.jsonl").write_text('{"promt": "abc=", "answer": "cba"}\n')
    (tmp_path / "numbers.jsonl").write_text('{"prompt": 5, "answer": "cba"}\n')
    write_long_rows(tmp_path)
    monkeypatch.chdir(tmp_path)

    def refuse(kind: type[MortalError], *overrides: str) -> str:
        with pytest.raises(kind) as caught:
            config = load_config(Path("tiny.toml"), overrides)
            open_run(config.model_copy(update={"run_id": "bad"}))
        assert type(caught.value) is kind
        assert not Path("runs/bad").exists(), "nothing is left of a refused run"
        return str(caught.value)

    return refuse


@pytest.mark.parametrize(
    ("kind", "overrides", "parts"),
    [
        (DataError, ["data.source=none.jsonl"], ["data.source", "none.jsonl", "no such file"]),
        (DataError, ["data.source=nobody/nothing"], ["data.source", "nobody/nothing"]),
        (DataError, ["data.source=reasoning_gym:spel_backward"], ["spell_backward"]),
        (DataError, ["data.source=columns.jsonl"], ["prompt", "promt"]),
        (DataError, ["data.source=numbers.jsonl"], ["prompt"]),
        (DataError, ["data.source=empty.jsonl"], ["data.source", "empty.jsonl"]),
        (DataError, ["data.eval_samples=1000"], ["data.eval_samples", "1000"]),
        (ConfigError, ["rewards.functions=['rewards']"], ["rewards", "module:function"]),
        (ModelError, ["rewards.functions=['./judge']"], ["reward model: no such folder: judge"]),
        (RewardError, ["rewards.functions=['no_mod:f']"], ["no_mod"]),
        (RewardError, ["rewards.functions=['none.py:f']"], ["none.py"]),
        (
            RewardError,
            ["rewards.functions=['broken.py:f']"],
            ["broken.py", "no_such_module_at_all"],
        ),
        (RewardError, ["rewards.functions=['rewards.py:matche']"], ["matche", "matches"]),
        (RewardError, ["rewards.functions=['bad.py:not_callable']"], ["not_callable"]),
        (RewardError, ["rewards.functions=['bad.py:wrong_length']"], ["wrong_length", "3", "2"]),
        (RewardError, ["rewards.functions=['bad.py:not_a_number']"], ["not_a_number", "nan"]),
        (RewardError, ["rewards.functions=['bad.py:a_string']"], ["a_string", "'good'"]),
        (RewardError, ["rewards.functions=['bad.py:no_list']"], ["no_list", "list"]),
        (RewardError, ["rewards.functions=['bad.py:raises']"], ["raises", "ZeroDivisionError"]),
        (
            RewardError,
            ["rewards.functions=['bad.py:hangs']", "rewards.timeout_s=0.5"],
            ["'hangs'", "0.5 s", "rewards.timeout_s", "in hangs"],
        ),
        (
            ConfigError,
            ["rewards.functions=[]"],
            ["[rewards] names no reward", "no column testcases or", "there are answer"],
        ),
        (
            ConfigError,
            ["rewards.weights=[1.0, 2.0]"],
            ["rewards: weights has 2 numbers for 1"],
        ),
        (ConfigError, ["rollout.max_tokens=64"], ["rollout.max_tokens = 64", "64 tokens"]),
        (
            ConfigError,
            ["data.eval_samples=0"],
            ["evaluation.eval_steps", "data.eval_samples"],
        ),
        (ConfigError, ["rollout.engine=vllm"], ["no vllm", "compute.local.rollout.python"]),
        (
            ConfigError,
            ["compute.local.actor.python=/no/python"],
            ["compute.local.actor.python", "/no/python"],
        ),
        (
            ConfigError,
            ["rollout.weight_sync=directly"],
            ["rollout.weight_sync", "'directly'", "reload, volume, checkpoint, direct"],
        ),
        (
            ConfigError,
            ["logging.report_to=['mlflow']"],
            ["logging.report_to: 'mlflow' is not known; there are wandb, tensorboard, trackio"],
        ),
        (
            ConfigError,
            ["training.trl.top_entropy_quantil=0.5"],
            ["training.trl.top_entropy_quantil", "training.trl.top_entropy_quantile"],
        ),
        (StoreError, ["runs_dir=tiny.toml"], ["runs_dir tiny.toml is not writable"]),
    ],
)
def test_a_mistake_is_named(refusal, kind, overrides, parts):
    message = refusal(kind, *overrides)
    for part in parts:
        assert part in message


def test_a_model_folder_must_be_whole(refusal, tmp_path):
    config = tmp_path / "tiny.toml"
    text = config.read_text().partition("[data]")[2]
    config.write_text(f'name = "tiny"\n[model]\nname_or_path = "./model"\n[data]{text}')
    (tmp_path / "model").mkdir()
    assert "has no config.json" in refusal(ModelError)
    (tmp_path / "model").rmdir()
    build_model(tmp_path / "model", NewModelConfig(num_layers=1, max_position_embeddings=64), 0)
    assert "context is 64 tokens" in refusal(ConfigError, "rollout.max_tokens=80")
    assert "did you mean model?" in refusal(ModelError, "model.name_or_path=./models")
    assert "nor a folder no" in refusal(ModelError, "model.name_or_path=./no/model")
    tokenizer = tmp_path / "model" / "tokenizer.json"
    tokenizer.rename(tmp_path / "kept.json")
    assert "has no tokenizer" in refusal(ModelError)
    (tmp_path / "kept.json").rename(tokenizer)
    weights = tmp_path / "model" / "model.safetensors"
    with weights.open("r+b") as file:
        file.truncate(weights.stat().st_size - 1)
    damaged = refusal(ModelError)
    assert "cannot be loaded" in damaged
    assert "\n" not in damaged
    weights.unlink()
    assert "has no weights" in refusal(ModelError)


def test_rows_that_are_too_long_are_left_out_where_that_is_asked_for(tmp_path, monkeypatch, caplog):
    write_project(tmp_path)
    write_long_rows(tmp_path)
    monkeypatch.chdir(tmp_path)
    chosen = ["data.source=long.jsonl", "data.on_long=drop", "rewards.dry_run=false"]
    config = load_config(Path("tiny.toml"), chosen)
    with caplog.at_level(logging.WARNING):
        run = open_run(config.model_copy(update={"run_id": "short"}))
    assert "left out: 2 of 60 prompts are too long (train-60: 61 tokens" in caplog.text
    train = open_problems(run.store, run.info.train_problems)
    held_out = open_problems(run.store, run.info.eval_problems)
    assert max(len(problem.prompt) for problem in (*train, *held_out)) < 58
    assert (run.info.num_problems, run.info.num_eval_problems) == (len(train), len(held_out))
    assert run.info.dataset_fingerprint == dataset_fingerprint(train)


def test_what_trl_warns_of_in_the_checks_is_a_notice_which_the_actor_does_not_repeat(
    tmp_path, monkeypatch, caplog
):
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    chosen = ["training.loss_type=dapo", "training.trl.importance_sampling_level=sequence"]
    config = load_config(Path("tiny.toml"), chosen)
    with caplog.at_level(logging.WARNING):
        run = open_run(config.model_copy(update={"run_id": "warned"}))
    (notice,) = read_notices(run.store)
    assert "weights each sequence by its completion length" in notice.text
    assert notice.text in caplog.text
    assert notice.event == "mortal.training.warned" and notice.level == "warning"
    assert note_warnings(run, [notice.text, "trl warns: of something else"], step=0) == [
        read_notices(run.store)[1]
    ]


def test_a_run_id_must_be_a_folders_name(tmp_path):
    for run_id in ("a b", "..", "ünï", "a\n"):
        config = RunConfig(runs_dir=str(tmp_path)).model_copy(update={"run_id": run_id})
        with pytest.raises(ConfigError, match=r"run_id = .* cannot name a folder"):
            open_run(config)
    assert not list(tmp_path.iterdir())


def test_settings_with_environment_variables_are_their_owners_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    old = os.umask(0o022)
    secret = {"compute": {"local": {"reward": {"env": {"KEY": "secret"}}}}}
    for name, values, mode in (("open", {}, 0o044), ("closed", secret, 0)):
        config = resolved(parse_config({"run_id": name, **values}), cores=1)
        write_identity(RunStore(tmp_path / name), config, [], [])
        assert (tmp_path / name / "config.toml").stat().st_mode & 0o077 == mode
    os.umask(old)


def test_a_command_is_not_misled_by_files_of_the_folder_it_is_called_in(tmp_path):
    for name in ("calendar", "datasets", "logging", "mortal_steps", "random", "typer"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('hidden')\n")
    command = [sys.executable, "-m", "mortal", "new-model", "model", "--hidden-size", "0"]
    called = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert called.returncode == 1
    assert called.stderr.split("\n")[1].startswith("  model.new.hidden_size = 0: must be")


def test_a_run_id_belongs_to_one_configuration(tmp_path, monkeypatch):
    write_project(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(preflight, "check", unchecked)
    config = load_config(Path("tiny.toml")).model_copy(update={"run_id": "same"})
    open_run(config)
    open_run(config)
    changed = load_config(Path("tiny.toml"), ["training.learning_rate=0.5"])
    with pytest.raises(StoreError, match=r"another configuration .*training.learning_rate was"):
        open_run(changed.model_copy(update={"run_id": "same"}))
    with pytest.raises(MortalError, match=r"no run 'other' in runs \(runs there: same\)"):
        find_run(Path("runs"), "other")


@pytest.mark.parametrize("name", SURROUNDINGS)
def test_an_environment_in_which_torch_would_wait_or_train_otherwise(tmp_path, monkeypatch, name):
    value, told = SURROUNDINGS[name]
    monkeypatch.setenv(name, value)
    config = load_config(write_project(tmp_path))
    with pytest.raises(ConfigError, match=told):
        open_run(config.model_copy(update={"run_id": "run", "runs_dir": str(tmp_path / "runs")}))
    assert not (tmp_path / "runs").exists()


def test_an_interpreter_that_leaves_docstrings_out(tmp_path):
    source = "from mortal_steps.orchestration.checking import checks\nchecks.check_environment()"
    asked = subprocess.run(
        [sys.executable, "-OO", "-c", source], capture_output=True, text=True, check=False
    )
    assert "ConfigError: PYTHONOPTIMIZE=2 (python -OO) removes docstrings" in asked.stderr
