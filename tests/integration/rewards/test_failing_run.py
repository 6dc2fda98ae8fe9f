"""A reward function that fails on some problems: it stops the run, or leaves those out."""

import dataclasses
import json

import pytest
from typer.testing import CliRunner

from mortal.cli import app
from mortal_steps.data.problem_files import ProblemFile
from mortal_steps.errors import RewardError
from mortal_steps.report.samples import samples_of
from tests.support.project import write_project
from tests.support.undisturbed import undisturbed

JUDGE = """
def judge(completions, answer, **kwargs):
    if any(right.endswith("b") for right in answer):
        raise RuntimeError("no verdict")
    return [0.0 for _ in completions]
"""
SETTINGS = (
    'rewards.functions=["rewards.py:matches", "judge.py:judge"]',
    "rewards.retries=1",
    "training.max_steps=2",
)


def read_record(path):
    return json.loads(path.read_text().splitlines()[1])


def judge_fails_on(problem):
    return problem["columns"]["answer"].endswith("b")


def show(run, *options):
    command = ["show", run.info.run_id, "--runs-dir", str(run.store.root.parent), *options]
    return CliRunner().invoke(app, command).stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    write_project(folder)
    (folder / "judge.py").write_text(JUDGE)
    return folder


@pytest.fixture(scope="module")
def stopped(folder):
    """What ends the run where nothing is masked."""
    with pytest.raises(RewardError) as raised:
        undisturbed(folder, SETTINGS, "judged")
    return str(raised.value)


@pytest.fixture(scope="module")
def masked(folder, stopped):
    """The same run, gone on with."""
    return undisturbed(folder, [*SETTINGS, "rewards.on_error=mask"], "judged")


@pytest.fixture(scope="module")
def held_out(masked):
    """The problems of the evaluation that the judge fails on."""
    problems = read_record(masked.store.path("data/eval.json"))
    return {problem["id"] for problem in problems if judge_fails_on(problem)}


@pytest.fixture(scope="module")
def quarantined(masked):
    shown = json.loads(show(masked, "--json"))
    return {one["problem_id"]: one for one in shown["quarantined"]}


def test_the_failure_that_stops_a_run_is_named(stopped):
    for part in ("'judge'", "RuntimeError: no verdict", "step 0", "2 times in a row"):
        assert part in stopped


def test_it_goes_on_without_the_completions_of_these_problems(masked):
    assert masked.manifest.status == "completed"
    rows = masked.metrics()
    for row in rows:
        batch = read_record(masked.store.path(f"steps/{row['step'] - 1:06d}/batch.json"))
        failing = list(filter(judge_fails_on, batch))
        assert row["rewards/judge/masked"] == 4 * len(failing)
        assert row["rewards/judge/failed_calls"] >= len(failing)
        assert row["rewards/matches/masked"] == row["rewards/matches/failed_calls"] == 0
        assert row["num_scored"] == 4 * (6 - len(failing))
    assert [row["rewards/judge/masked"] for row in rows] == [0, 12]


def test_masked_completions_say_what_failed_on_them(masked):
    sample, *_ = samples_of(masked, 1, kinds=["masked"])
    assert sample.why == ["judge raised RuntimeError: no verdict (exception, 2 calls)"]


def test_each_function_is_told_with_its_scores_failures_and_latency(masked):
    shown = json.loads(show(masked, "--json"))
    judge, matches = sorted(shown["functions"], key=lambda row: row["name"])
    assert (judge["name"], judge["masked"], matches["failed_calls"]) == ("judge", 12, 0)
    assert judge["latency_s"] > 0 and matches["std"] is not None
    assert shown["timings"]["reward: judge"]["total_s"] > 0


def test_the_problems_are_listed_with_what_failed(masked, quarantined, held_out):
    assert "problems that a reward function failed on" in show(masked)
    rows = map(dataclasses.asdict, ProblemFile(masked.store.path("data/train.arrow")))
    train = {row["id"] for row in rows if judge_fails_on(row)}
    assert held_out < set(quarantined) <= {*held_out, *train}
    for one in quarantined.values():
        assert (one["function"], one["kind"]) == ("judge", "exception")
        assert one["message"] == "raised RuntimeError: no verdict"


def test_each_evaluation_counts_its_failures(masked, quarantined, held_out):
    assert {quarantined[name]["times"] for name in held_out} == {2}, "evaluated twice"
    assert json.loads(show(masked, "--json"))["eval"]["rewards/judge/masked"] == len(held_out)
