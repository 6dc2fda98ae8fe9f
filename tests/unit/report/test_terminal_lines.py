"""What a run says while it goes on, and its chart."""

import pytest

from mortal.terminal.display import chart
from mortal_steps.report.curve_points import downsample
from mortal_steps.report.progress import Pace, ProgressLine, Speed, StepReport, recent_steps


def report(step, **changes):
    known = {"reward": 0.25, "loss": -0.02, "num_tokens": 100}
    return StepReport(step=step, **{**known, **changes})


SPEED = Speed(step_s=0.5, tokens_per_s=200.0)


def test_the_speed_is_a_mean_over_the_last_steps_and_what_came_between_them():
    ends = iter([100.0, 140.0, 150.0, 160.0, 200.0])
    pace = Pace(3, now=lambda: next(ends))
    pace.begin()
    assert pace.end(80) == Speed(step_s=40.0, tokens_per_s=2.0)
    pace.begin()  # the time between two steps counts as well
    assert pace.end(20) == Speed(step_s=25.0, tokens_per_s=2.0)
    pace.end(20)
    last = pace.end(40)
    assert last == Speed(step_s=20.0, tokens_per_s=80 / 60), "without the first"
    assert last.eta_s(30) == 600.0


def test_an_evaluation_always_has_its_share_in_the_speed():
    assert recent_steps(None) == 10
    assert recent_steps(50) == 50


@pytest.fixture
def line(monkeypatch):
    monkeypatch.setattr("mortal_steps.report.progress.LINE_EVERY_S", 3600.0)
    said = []
    progress = ProgressLine(start=0, num_steps=5, log=said.append)
    progress.said = said
    with progress:
        progress.begin_steps(0)
        yield progress


def test_without_a_terminal_there_is_a_line_per_report(line):
    line.update(report(1), SPEED)
    assert line.said == []
    line.evaluated(2, {"exact_match": 0.5, "reward": 0.5, "episodes/turns": 3.0})
    line.update(report(2), SPEED)
    line.update(report(3), SPEED)
    (told,) = line.said
    assert told == (
        "step 2/5  reward 0.250  loss -0.0200  0.50 s/step  200 tokens/s  ETA 0:02"
        "  held-out after step 2: exact_match 0.500, reward 0.500"
    )
    line.update(report(5), SPEED)
    assert line.said[1].startswith("step 5/5") and "held-out" not in line.said[1]


def test_of_named_sets_a_line_has_the_rewards_alone(line):
    scores = {"right": 0.5, "reward": 0.5}
    for name in ("easy", "hard"):
        scores |= {f"eval_{name}_reward": 0.25, f"eval_{name}_rewards/right/mean": 0.25}
        scores |= {f"eval_{name}_pass@4/reward": 1.0, f"eval_{name}_rewards/right/masked": 2.0}
    line.evaluated(2, scores)
    line.update(report(2), SPEED)
    told = "right 0.500, reward 0.500, eval_easy_reward 0.250, eval_hard_reward 0.250"
    assert line.said[0].endswith(f"  held-out after step 2: {told}")


def test_of_scored_groups_a_line_says_how_many_and_what_was_trained_on():
    scored = report(1, num_groups=8).text(SPEED)
    assert scored == "reward 0.250  loss -0.0200  8 groups  0.50 s/step  200 trained tokens/s"


def test_a_speed_in_tokens_that_nobody_counts_is_left_out():
    uncounted = Speed(step_s=0.5, tokens_per_s=0.0)
    assert report(1).text(uncounted) == "reward 0.250  loss -0.0200  0.50 s/step"


def test_a_long_curve_is_told_in_few_points():
    points = [(step, float(step)) for step in range(1, 11)]
    assert downsample(points, 10) == points
    assert downsample(points, 3) == [(3, 2.0), (6, 5.0), (10, 8.5)]


def test_a_chart_fits_a_narrow_terminal_and_shows_both_ends():
    training = [(step, step / 1000) for step in range(1, 1001)]
    lines = chart(training, [(0, 0.0), (1000, 1.5)], fork=500, drawn={"training": "sampled"})
    assert max(map(len, lines)) <= 80
    assert lines[0].startswith("    1.500 │") and lines[0].endswith("o")
    assert lines[7].startswith("    0.000 │o·")
    assert all("┊" in text or "·" in text for text in lines[:8])
    assert lines[-2].split() == ["step", "└1", "1000"]
    assert lines[-1].strip().split("  ") == [
        "· training (sampled)",
        "o held-out problems",
        "┊ fork",
    ]


def test_a_chart_is_as_narrow_as_the_terminal():
    lines = chart([(step, 0.5) for step in range(1, 101)], [], columns=50)
    assert max(map(len, lines)) <= 50 and lines[-2].endswith("100")


def test_a_chart_of_equal_rewards_is_a_line_and_of_few_steps_nothing():
    assert chart([(1, 0.5)] * 3, []) == []
    flat = chart([(step, 0.5) for step in range(1, 61)], [])
    assert flat[7] == "    0.500 │" + "·" * 60
