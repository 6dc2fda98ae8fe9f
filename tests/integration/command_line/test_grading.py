"""`mortal grade`: every problem several times, durable like a run."""

import asyncio
import json
from math import inf
from pathlib import Path

import pytest

from mortal.terminal.grades import show_grades
from mortal_steps.config import DataConfig
from mortal_steps.data.problems import load_problems
from mortal_steps.orchestration.trials.grading import (
    FOLDER,
    Graded,
    Grades,
    Grading,
    _least_of_solutions,
    write_rows,
)
from mortal_steps.orchestration.trials.opening import settings_of_trial
from mortal_steps.orchestration.trials.scoring import ModelScoring
from mortal_steps.orchestration.trials.trial import all_problems
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.parts import Plan
from mortal_steps.types import Problem
from tests.support.project import write_project


class Killed(Exception):
    pass


SERVICE = """
import os

def nothing(completions, **kwargs):
    if os.path.exists("away"):
        raise ConnectionError("nobody answers")
    return [0.0 for text in completions]
"""


def test_what_could_not_be_scored_is_scored_when_it_is_asked_for_again(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.py").write_text(SERVICE)
    rewards = [
        "rewards.functions=['service.py:nothing']",
        "rewards.on_error='mask'",
        "rewards.retries=0",
    ]
    path = write_project(tmp_path)
    settings = settings_of_trial(load_config(path, ["rollout.num_rollout_workers=1", *rewards]))
    plan = Plan(settings)
    grading = Grading(
        plan.workers,
        all_problems(plan.problems)[:4],
        settings.sampling,
        num_generations=2,
        problems_per_shard=1,
        runs_dir=Path("runs"),
    )

    def num_scored(report=lambda done, of: None):
        return [each.num_scored for each in asyncio.run(grading.grade(report=report)).problems]

    def dying(done, of):
        raise Killed

    (tmp_path / "away").touch()
    with pytest.raises(Killed):
        num_scored(dying)
    [shards] = Path("runs").glob(f"{FOLDER}/*/shards")
    there = {path: path.stat().st_mtime_ns for path in shards.glob("rewards-*")}
    assert 0 < len(there) < 4
    assert num_scored() == [0] * 4
    assert {path: path.stat().st_mtime_ns for path in there} == there, "a killed one goes on"
    (tmp_path / "away").unlink()
    there = {path: path.stat().st_mtime_ns for path in shards.glob("rewards-*")}
    as_in_a_stage = ModelScoring(
        *(plan.workers, all_problems(plan.problems)[:4], settings.sampling),
        num_generations=2,
        bounds=[(number, number + 1) for number in range(4)],
    )
    path = as_in_a_stage.starting_model()[0]
    asyncio.run(as_in_a_stage.score(shards.parent, path, lambda done, of: None))
    assert {path: path.stat().st_mtime_ns for path in there} == there, "a stage is not asked again"
    grades = asyncio.run(grading.grade())
    assert [each.num_scored for each in grades.problems] == [2] * 4
    assert [each.num_solved for each in grades.problems] == [0] * 4, "none counts as a solution"
    show_grades(grades, 0)
    shown = capsys.readouterr().out
    assert "pass@1   0.000" in shown and "none counts as a solution" in shown


def test_a_grading_that_is_killed_goes_on_and_gives_the_same_grades(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = load_config(write_project(tmp_path), ["rollout.num_rollout_workers=1"])
    settings = settings_of_trial(config)
    plan = Plan(settings)
    problems = all_problems(plan.problems)[:12]

    def grade(runs_dir, report=lambda done, of: None):
        grading = Grading(
            plan.workers,
            problems,
            settings.sampling,
            num_generations=3,
            problems_per_shard=4,
            runs_dir=Path(runs_dir),
        )
        return asyncio.run(grading.grade(report=report))

    def dying(done, of):
        assert of == 36
        raise Killed

    with pytest.raises(Killed):
        grade("killed", dying)
    [shards] = Path("killed").glob(f"{FOLDER}/*/shards")
    there = {path: path.stat().st_mtime_ns for path in shards.glob("generations-*")}
    assert there
    grades = grade("killed")
    assert {path: path.stat().st_mtime_ns for path in there} == there, "none is sampled again"
    assert grades == grade("whole")
    assert [each.num_scored for each in grades.problems] == [3] * 12


def graded(num_solved, num_scored=8) -> Graded:
    problem = Problem(id="train-0", prompt="1 + 1 =", columns={"answer": "2"})
    mean = num_solved / num_scored if num_scored else None
    return Graded(problem=problem, num_scored=num_scored, num_solved=num_solved, mean_reward=mean)


@pytest.mark.parametrize(
    ("problem", "rate", "size"),
    [
        (graded(0), 0.0, None),
        (graded(8), 1.0, None),
        (graded(4), 0.5, 2),
        (graded(1), 0.125, 8),
        (graded(7), 0.875, 8),
        (graded(0, 0), None, None),
    ],
)
def test_a_group_is_as_large_as_it_takes_to_see_one_that_differs(problem, rate, size):
    assert (problem.pass_rate, problem.group_size) == (rate, size)


def test_problems_that_are_never_solved_are_not_said_to_score_alike(capsys):
    """Rewards of 0.1 to 0.7 differ, and a run learns from them, though none is a solution."""
    grades = Grades(problems=[graded(0), graded(2)], num_generations=8, success=1.0)
    show_grades(grades, 0)
    assert "50% of the problems are solved by none or by all of 8 comp" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("rewards", "least"),
    [
        ([[0.0, 0.0], [0.0]], inf),
        ([[-1.0], [-1.0]], inf),
        ([[0.5], [0.5]], 0.5),
        ([[-1.0], [0.0]], 0.0),
        ([[], []], inf),
    ],
)
def test_where_all_completions_fail_alike_none_is_a_solution(rewards, least):
    assert _least_of_solutions(rewards) == least


def test_the_file_is_the_dataset_with_its_grades(tmp_path):
    grades = Grades(problems=[graded(2)], num_generations=8, success=1.0)
    added = {"pass_rate": 0.25, "mean_reward": 0.25, "group_size": 4}
    for column in ("prompt", "question"):
        write_rows(tmp_path / "graded.jsonl", grades, column)
        row = json.loads((tmp_path / "graded.jsonl").read_text())
        assert row == {column: "1 + 1 =", "answer": "2", **added}
        data = DataConfig(source=str(tmp_path / "graded.jsonl"), prompt_column=column)
        [again], _ = load_problems(data, 0)
        assert again.prompt == "1 + 1 ="
    assert grades.pass_at(8) == [1.0]
