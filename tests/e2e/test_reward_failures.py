"""A reward function that fails on some problems: it stops the run, or leaves those out."""

import dataclasses
import json

from mortal_steps.data.problem_files import ProblemFile
from tests.e2e.conftest import write_project

JUDGE = """
def judge(completions, answer, **kwargs):
    if any(right.endswith("b") for right in answer):
        raise RuntimeError("no verdict")
    return [0.0 for _ in completions]
"""


def read_record(path):
    return json.loads(path.read_text().splitlines()[1])


def judge_fails_on(problem):
    return problem["columns"]["answer"].endswith("b")


def test_a_run_stops_at_a_failure_and_goes_on_without_the_problem(mortal):
    write_project(mortal.folder)
    (mortal.folder / "judge.py").write_text(JUDGE)
    train = (
        *("train", "tiny.toml", "--run-id", "judged", "--set", "training.max_steps=2"),
        *("--set", 'rewards.functions=["rewards.py:matches", "judge.py:judge"]'),
        *("--set", "rewards.rehearse=false", "--set", "rewards.retries=1"),
    )
    stopped = mortal(*train, code=1)
    assert "reward function 'judge' raised RuntimeError: no verdict on step 0" in stopped
    assert "(exception, 2 times in a row)" in stopped

    output = mortal(*train, "--set", "rewards.on_error=mask")
    assert "problems that a reward function failed on" in output
    shown = mortal.show("judged")
    assert shown["status"] == "completed"

    run_dir = mortal.folder / "runs" / "judged"
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) == 2
    for row in rows:
        batch = read_record(run_dir / f"steps/{row['step'] - 1:06d}/batch.json")
        failing = list(filter(judge_fails_on, batch))
        assert row["rewards/judge/masked"] == 4 * len(failing)
        assert row["rewards/judge/failed_calls"] >= len(failing)
        assert row["rewards/matches/masked"] == row["rewards/matches/failed_calls"] == 0
        assert row["num_scored"] == 4 * (6 - len(failing))
    assert [row["rewards/judge/masked"] for row in rows] == [0, 12]

    quarantined = {one["problem_id"]: one for one in shown["quarantined"]}
    train = [
        problem.id
        for problem in ProblemFile(run_dir / "data/train.parquet")
        if judge_fails_on(dataclasses.asdict(problem))
    ]
    held_out = [
        one["id"] for one in filter(judge_fails_on, read_record(run_dir / "data/eval.json"))
    ]
    assert set(held_out) < set(quarantined) <= {*held_out, *train}
    for one in quarantined.values():
        assert (one["function"], one["kind"]) == ("judge", "exception")
        assert one["message"] == "raised RuntimeError: no verdict"
    assert {quarantined[name]["times"] for name in held_out} == {2}, "evaluated twice"
    assert shown["eval"]["rewards/judge/masked"] == len(held_out)
