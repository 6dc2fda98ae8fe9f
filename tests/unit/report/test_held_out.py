"""What each held-out problem scored: intervals and gains, wherever an evaluation is shown."""

import dataclasses
import json
import logging

import pytest

from mortal.terminal.display import console, show_run
from mortal.terminal.output import print_json
from mortal_steps.config import RewardsConfig
from mortal_steps.report.held_out import HeldOutScores, paired_text
from mortal_steps.report.report_files import write_report
from mortal_steps.report.summary import summarize
from mortal_steps.report.trackers.committed import CommittedSteps
from mortal_steps.statistics.intervals import bootstrap, wilson
from mortal_steps.statistics.paired import Paired
from tests.support.damage import flip_a_byte
from tests.support.scored_run import scored_run

REWARDS = RewardsConfig(functions=("m:right", "m:length"), weights=(1.0, 0.5))
LENGTHS = [i * i % 17 / 16 for i in range(40)]


def answers(num_right):
    """40 problems, of which the first are answered right."""
    return [[{"right": float(i < num_right), "length": LENGTHS[i]}] for i in range(40)]


@pytest.fixture
def run(tmp_path):
    return scored_run(tmp_path, REWARDS, {0: answers(20), 2: answers(36), 4: answers(30)})


def shown(run):
    with console.capture() as printed:
        show_run(summarize(run))
    return printed.get()


def test_the_mean_of_each_column_is_the_score_that_is_logged(run):
    scores = HeldOutScores(run).of(4)
    (row,) = [row for row in run.logs.read("evaluations.jsonl") if row["step"] == 4]
    assert scores.keys() == row.keys() - {"step"}
    for name, column in scores.items():
        assert sum(column) / 40 == pytest.approx(row[name])


def test_shares_have_wilsons_interval_and_continuous_scores_the_bootstrap_of_this_seed(run):
    found = HeldOutScores(run).intervals(4)
    assert (found["right"].low, found["right"].high) == wilson(30, 40)
    assert (found["length"].low, found["length"].high) == bootstrap(LENGTHS, (run.config.seed, 4))
    assert found["reward"].method == "bootstrap"
    assert found == HeldOutScores(run).intervals(4), "the same draws"


def test_intervals_and_the_gain_are_shown_on_a_terminal_in_the_report_and_by_trackers(run):
    low, high = wilson(30, 40)
    interval = f"0.750 [{low:.3f}, {high:.3f}]"
    write_report(run)
    report = run.store.path("report.md").read_text()
    (line,) = [line for line in report.splitlines() if line.startswith("| `right` |")]
    first, best = (f"[{ends[0]:.3f}, {ends[1]:.3f}]" for ends in (wilson(20, 40), wilson(36, 40)))
    assert line == f"| `right` | 0.500 {first} | 0.900 {best} | {interval} |"
    gain = "reward since step 0: better by 0.250 [0.125, 0.375] on the same 40 problems"
    assert gain in report and gain in shown(run)
    assert f"right {interval}" in shown(run)
    values = {entry.step: entry.values for entry in CommittedSteps(run, 0).new(after=-1)}
    assert values[4]["eval/right"] == 0.75
    assert (values[4]["eval/right/low"], values[4]["eval/right/high"]) == (low, high)
    assert not [name for name in values[3] if name.endswith("/low")]


def test_the_summary_as_json_has_both(run, capsys):
    print_json(summarize(run))
    found = json.loads(capsys.readouterr().out)
    assert found["eval_intervals"]["right"]["method"] == "wilson"
    assert found["eval_gain"]["since"] == 0
    assert found["eval_gain"]["paired"]["num_problems"] == 40


def test_several_completions_of_a_problem_count_as_one_problem(tmp_path):
    """40 completions of 10 problems, four alike: the interval is that of 10 problems."""
    groups = [[{"right": float(i < 5)}] * 4 for i in range(10)]
    run = scored_run(tmp_path, RewardsConfig(functions=("m:right",)), {1: groups})
    found = HeldOutScores(run).intervals(1)["right"]
    assert (found.low, found.high) == wilson(5, 10)
    groups[0] = [{"right": 0.0}] + [{"right": 1.0}] * 3
    mixed = scored_run(tmp_path / "mixed", RewardsConfig(functions=("m:right",)), {1: groups})
    assert HeldOutScores(mixed).intervals(1)["right"].method == "bootstrap"


def test_several_completions_give_pass_at_k_with_an_interval(tmp_path):
    """One of four right is a quarter of pass@1, and all of pass@4."""
    groups = [[{"right": float(i < 5 and j == 0)} for j in range(4)] for i in range(10)]
    groups[9] = [{"right": None}, *groups[9][1:]]
    run = scored_run(tmp_path, RewardsConfig(functions=("m:right",)), {1: groups})
    (row,) = run.logs.read("evaluations.jsonl")
    assert row["right"] == pytest.approx(5 / 39)
    assert row["pass@4/right"] == row["pass@4/reward"] == pytest.approx(5 / 9)
    found = HeldOutScores(run).intervals(1)
    assert (found["pass@4/right"].low, found["pass@4/right"].high) == wilson(5, 9)
    assert found.keys() == row.keys() - {"step"}


def test_continuous_scores_have_no_pass_at_k(tmp_path):
    groups = [[{"right": 1.0, "length": 0.5}, {"right": 0.0, "length": 0.25}]] * 3
    run = scored_run(tmp_path, REWARDS, {1: groups})
    (row,) = run.logs.read("evaluations.jsonl")
    assert [name for name in row if name.startswith("pass@")] == ["pass@2/right"]


def test_each_set_has_intervals_of_its_own_problems(tmp_path):
    groups = [[{"reward": float(i < 20)}] for i in range(40)]
    rewards = RewardsConfig(functions=("m:reward",))
    run = scored_run(tmp_path, rewards, {1: groups}, sets={"easy": 10, "hard": 30})
    found = HeldOutScores(run).intervals(1)
    assert (found["eval_easy_reward"].low, found["eval_easy_reward"].high) == wilson(10, 10)
    hard = found["eval_hard_rewards/reward/mean"]
    assert (hard.low, hard.high) == wilson(10, 30)
    (row,) = run.logs.read("evaluations.jsonl")
    assert found.keys() == row.keys() - {"step"}


def test_a_problem_that_was_not_scored_takes_no_part(tmp_path):
    groups = [[{"right": None}]] * 10 + [[{"right": float(i < 20)}] for i in range(30)]
    run = scored_run(tmp_path, RewardsConfig(functions=("m:right",)), {1: groups})
    found = HeldOutScores(run).intervals(1)["right"]
    assert (found.low, found.high) == wilson(20, 30)


def test_without_its_shards_an_evaluation_is_shown_without_an_interval(run, caplog):
    run.store.path("evaluations/000000/rewards-1.parquet").unlink()
    assert HeldOutScores(run).of(0) is None
    assert "since step 2: worse by 0.150" in shown(run), "as of a fork, with its parent's lines"
    flip_a_byte(run.store.path("evaluations/000004/rewards-2.parquet"))
    with caplog.at_level(logging.WARNING):
        text = shown(run)
    assert "right 0.750, " in text and "since step" not in text
    assert "the evaluation after step 4 has no intervals" in caplog.text


def test_an_evaluation_by_its_loss_has_no_intervals(run):
    """As of rows of a dataset: there are no completions that are scored."""
    run.append("evaluations.jsonl", {"step": 5, "loss": 0.5})
    run.update(step=5)
    assert HeldOutScores(run).intervals(5) == {}
    assert "since step" not in shown(run)


PAIRED = Paired(difference=0.08, low=0.03, high=0.13, p=None, num_problems=200)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "better by 0.080 [0.030, 0.130] on the same 200 problems"),
        (
            {"p": 0.002},
            "better by 0.080 [0.030, 0.130] on the same 200 problems, McNemar's p 0.002",
        ),
        (
            {"difference": -0.08, "low": -0.13, "high": -0.03, "p": 1e-9},
            "worse by 0.080 [0.030, 0.130] on the same 200 problems, McNemar's p < 0.001",
        ),
        (
            {"low": -0.01, "high": 0.17},
            "no clear difference: +0.080 [-0.010, +0.170] on the same 200 problems",
        ),
        # Four problems of 200 are new: the bootstrap has seen too few to know how they scatter.
        (
            {"difference": 0.02, "low": 0.005, "high": 0.04, "p": 0.125},
            "no clear difference: +0.020 [+0.005, +0.040] on the same 200 problems, McNemar's p "
            "0.125",
        ),
        (
            {"difference": 0.0, "low": None, "high": None},
            "+0.000 on each of the same 200 problems, too alike for an interval",
        ),
    ],
)
def test_a_comparison_is_said_in_words(changes, text):
    assert paired_text(dataclasses.replace(PAIRED, **changes)) == text
