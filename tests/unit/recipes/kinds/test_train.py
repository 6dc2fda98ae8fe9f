"""A stage that was cut off goes on with what its run began with, and with the workers of now."""

from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.open_run import changes
from mortal_steps.recipes.kinds.train import TrainStage
from mortal_steps.runs.identity import write_identity
from mortal_steps.store import RunStore
from mortal_steps.types import Problem
from tests.support.project import write_project
from tests.support.recipes import TINY, job_of

CODE = """
def matches(completions, **_):
    return [0.0] * len(completions)

def add(a: int) -> int:
    \"\"\"Add.\"\"\"

def draw(draw):
    yield
"""
FOLDERS = ("model", "judge", "teacher")


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    Path("mine.py").write_text(CODE)
    Path("tasks").mkdir()
    Path("tasks/exam.yaml").write_text("task: exam\n")
    for folder in FOLDERS:
        Path(folder).mkdir()
        Path(folder, "config.json").write_text("{}")
        Path(folder, "model.safetensors").write_text(folder)


def stage(code="mine.py", prefix="./", *, workers=1, timeout_s=60.0, algorithm=None):
    values = {
        **TINY,
        "model": {"name_or_path": f"{prefix}model"},
        "data": {"source": "train.jsonl", "eval_sets": {"hard": "train.jsonl"}},
        "rollout": {"num_shards": 2, "num_rollout_workers": workers},
        "rewards": {
            "timeout_s": timeout_s,
            "terms": [
                {"type": "function", "function": f"{code}:matches"},
                {"type": "model", "model": f"{prefix}judge"},
            ],
        },
        "environment": {"tools": [f"{code}:add"], "timeout_s": timeout_s},
        "selection": {"type": f"{code}:draw"},
        "evaluation": {
            "functions": [f"{code}:matches"],
            "decides": "exam",
            "sets": {
                "hard": {"functions": [f"{code}:matches", f"{prefix}judge"]},
                "exam": {
                    "type": "lm_eval",
                    "folder": f"{prefix}tasks",
                    "tasks": ["exam"],
                    "timeout_s": timeout_s,
                },
            },
        },
    }
    if algorithm:
        values |= {"algorithm": algorithm, "selection": {}, "environment": {}}
    del values["name"]
    return TrainStage("own", values, "letters")


def began(stage):
    """Begin the run of a stage, and return its configuration."""
    job = job_of(stage)
    config = stage.config(job)
    write_identity(RunStore(Path("runs") / job.id), config, [Problem(id="a", prompt="a")], [])
    return config


@pytest.mark.parametrize(
    "algorithm",
    [
        lambda prefix: None,
        lambda prefix: {"type": "distillation", "teacher": f"{prefix}teacher"},
        lambda prefix: {"type": "opd", "teachers": {"big": f"{prefix}teacher"}},
    ],
)
def test_what_was_renamed_since_is_as_the_run_began_with_it(algorithm, tmp_path):
    begun = began(stage(algorithm=algorithm("./")))
    Path("others.py").write_text(CODE)
    prefix = f"{tmp_path}/"
    renamed = stage("others.py", prefix, workers=3, timeout_s=7.0, algorithm=algorithm(prefix))
    job = job_of(renamed)
    assert job.id == begun.run_id
    config = renamed.config(job)
    assert changes(begun, config) == []
    assert config.model.name_or_path == "./model"
    assert config.evaluation.functions == ("mine.py:matches",)
    # What decides no numbers is as the recipe has it now.
    assert config.rollout.num_rollout_workers == 3
    assert config.rewards.timeout_s == 7.0
    assert config.environment.timeout_s == (7.0 if config.environment.tools else 60.0)
    assert config.evaluation.harnesses["exam"].timeout_s == 7.0
    assert config.evaluation.harnesses["exam"].folder == "./tasks"


def test_code_that_was_renamed_while_its_run_was_cut_off_is_asked_for_by_its_name():
    began(stage())
    Path("mine.py").rename("others.py")
    renamed = stage("others.py")
    with pytest.raises(ConfigError) as refused:
        renamed.config(job_of(renamed))
    assert str(refused.value).startswith(
        "stages.own: its run was begun with 'mine.py:matches' and goes on with that name, but"
    )
    Path("others.py").rename("mine.py")
    assert stage().config(job_of(stage())).rewards.all_terms


def test_a_begun_run_keeps_what_was_resolved_for_it():
    chosen = stage()
    config = began(chosen)
    resolved = config.rollout.model_copy(update={"max_tokens": 5, "engine": "transformers"})
    job = job_of(chosen)
    whole = config.model_copy(update={"rollout": resolved})
    write_identity(RunStore(Path("runs") / job.id), whole, [Problem(id="a", prompt="a")], [])
    assert chosen.config(job).rollout == resolved
