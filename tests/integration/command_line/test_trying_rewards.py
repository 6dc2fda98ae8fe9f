"""`mortal test-reward --completions`: completions of a file through the reward path of a run."""

import json

import pytest

from mortal_steps.orchestration.trials.opening import passing_workers
from mortal_steps.orchestration.trials.trial import try_rewards
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rewards.scoring.completions_file import read_completions

SOURCE = """
import os

def correct(completions, answer, **kwargs):
    print("called with", len(completions))
    if "raise" in completions:
        raise ValueError("odd")
    if "exit" in completions:
        os._exit(3)
    return [float(text == right) for text, right in zip(completions, answer)]

async def if_long(completions, **kwargs):
    return [1.0 if len(text) > 2 else None for text in completions]
"""
CONFIG = """
[data]
source = "train.jsonl"
[rewards]
functions = ["my_rewards.py:correct", "my_rewards.py:if_long"]
weights = [1.0, 0.5]
retries = 1
[training]
batch_size = 4
num_generations = 2
[rollout]
num_shards = 2
"""
ROWS = [
    {"prompt": "a", "completion": "ba", "answer": "ba"},
    {"prompt": "a", "completion": "long", "answer": "ba"},
    {"prompt": "p", "completion": "x", "answer": "x"},
    {"prompt": "b", "completion": "raise", "answer": "y"},
    {"prompt": "b", "completion": "y", "answer": "y"},
    {"prompt": "c", "completion": "exit", "answer": "y"},
]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rewards.py").write_text(SOURCE)
    (tmp_path / "c.toml").write_text(CONFIG)
    (tmp_path / "train.jsonl").write_text('{"prompt": "p", "answer": "x"}\n')
    return tmp_path


def write(path, rows):
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_what_fails_is_masked_and_the_rest_is_scored(mortal, project):
    file = write(project / "some.jsonl", ROWS)
    code, output, _ = mortal("test-reward", "c.toml", "--completions", file, "--json")
    found = json.loads(output)
    scored = [(each["place"], each["reward"]) for each in found["completions"]]
    assert (code, found["stops"], found["num_shards"]) == (1, True, 2)
    assert scored == [
        ("row 0", 1.0),
        ("row 1", 0.5),
        ("row 2", 1.0),
        ("row 3", None),
        ("row 4", None),
        ("row 5", None),
    ]
    assert found["completions"][4]["masked"] == [
        "correct raised ValueError: odd (exception, 3 calls)"
    ]
    assert "ended its process (exit code 3)" in found["completions"][5]["masked"][0]
    correct, if_long = found["functions"]
    assert (correct["mean"], correct["num_scored"], correct["masked"]) == (2 / 3, 3, 3)
    assert (if_long["mean"], if_long["num_abstained"], if_long["failed_calls"]) == (1.0, 2, 0)
    assert correct["latency_s"] > 0 and correct["seconds"] > correct["latency_s"]


def test_it_prints_the_scores_and_says_that_all_is_well(mortal, project):
    file = write(project / "some.jsonl", ROWS[:3])
    command = ("test-reward", "c.toml", "--completions", file, "--one-by-one", "--logs")
    code, output, errors = mortal(*command)
    completions, functions = (part.splitlines() for part in output.strip().split("\n\n"))
    assert (code, [line.split()[-2] for line in completions[1:]]) == (
        0,
        ["reward", "1.000", "0.500", "1.000"],
    )
    assert completions[1].split()[:4] == ["where", "prompt", "answer", "completion"]
    assert completions[2].split()[:5] == ["row", "0", "a", "ba", "ba"]
    assert [line.split()[0] for line in functions[1:]] == ["reward", "correct", "if_long"]
    assert "called with 2" in errors and "called with 1" in errors and "masked" not in errors


def test_the_functions_of_an_evaluation_can_be_tried(project):
    config = RunConfig(
        rewards={"functions": ["my_rewards.py:correct"]},
        evaluation={"functions": ["my_rewards.py:if_long"]},
    ).for_evaluation()
    worker = passing_workers(Plan(config).workers)["reward"]
    given = read_completions(write(project / "some.jsonl", ROWS[3:]), "prompt")
    trial = try_rewards(worker, given, config.problems_per_shard)
    assert [each.name for each in trial.functions] == ["if_long"]
    assert (trial.num_masked, trial.stops) == (0, False)


def test_columns_that_settings_name_come_first(project):
    rows = [{"prompt": "a", "completion": "ba", "other": 1, "right": "ba"}]
    config = RunConfig(rewards={"terms": [{"type": "exact", "column": "right"}]})
    worker = passing_workers(Plan(config).workers)["reward"]
    given = read_completions(write(project / "some.jsonl", rows), "prompt")
    trial = try_rewards(worker, given, config.problems_per_shard)
    assert list(trial.completions[0].columns) == ["right", "other"]
    assert trial.completions[0].reward == 1.0
