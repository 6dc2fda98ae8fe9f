"""Runs beside each other, from the lines of their logs."""

import dataclasses
import json
from math import nan

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mortal.terminal.comparison import show_comparison
from mortal_steps.errors import DataError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.report.comparison import _scale, _used, compare, picture
from mortal_steps.report.units import money
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types.identity import Parent
from tests.support.run_info import run_info


def run_of(folder, name, scores, tokens, usage=(), **training):
    (folder / name).mkdir()
    config = RunConfig.model_validate({"rewards": {"functions": ["m:f"]}, "training": training})
    run = Run(RunStore(folder / name), config, run_info(folder))
    for step in range(1, 5):
        run.append("metrics.jsonl", {"step": step, "reward": 0.25, "num_sampled_tokens": tokens})
    for number, score in enumerate(scores):
        run.append("evaluations.jsonl", {"step": 2 * number, "reward": score, "f": score / 2})
    for step, row in enumerate(usage, start=1):
        run.append("usage.jsonl", {"step": step, **row})
    return run


@pytest.fixture
def runs(tmp_path):
    slow = run_of(tmp_path, "slow", [0.1, 0.2, 0.3], 100)
    fast = run_of(tmp_path, "fast", [0.1, 0.6, 0.5], 50, learning_rate=1e-4)
    return [slow, fast]


def test_each_run_has_what_it_reached_and_used(runs):
    slow, fast = compare(runs).runs
    assert (slow.best, slow.best_step, slow.last, slow.tokens) == (0.3, 4, 0.3, 400)
    assert (fast.best, fast.best_step, fast.last, fast.tokens) == (0.6, 2, 0.5, 200)
    assert compare(runs, "f").runs[1].best == 0.3


def test_runs_of_one_name_are_told_apart_by_their_folders(tmp_path):
    for folder in ("one", "other"):
        (tmp_path / folder / "runs").mkdir(parents=True)
    paths = [tmp_path / "one" / "runs", tmp_path / "other" / "runs"]
    runs = [run_of(path, "run", [0.1], 100) for path in paths]
    assert [each.name for each in compare(runs).runs] == ["one/runs/run", "other/runs/run"]
    assert picture(runs, compare(runs)).startswith(b"\x89PNG")


def test_what_differs_in_their_configurations_is_named(runs):
    assert compare(runs).differences == {"training.learning_rate": [5e-6, 1e-4]}


def test_what_ends_runs_early_is_named_and_a_table_that_only_one_has_key_by_key(tmp_path):
    at_goal = {"until": {"max_tokens": 900}, "trl": {"lr_scheduler_type": "cosine"}}
    runs = [run_of(tmp_path, "plain", [], 10), run_of(tmp_path, "early", [], 10, **at_goal)]
    assert compare(runs).differences == {
        "training.trl.lr_scheduler_type": ["-", "cosine"],
        "training.until.max_tokens": ["-", 900],
    }


def test_tables_of_a_list_are_compared_key_by_key(tmp_path):
    def judged(name, *models):
        terms = [{"type": "judge", "model": model, "rubric": "r"} for model in models]
        (tmp_path / name).mkdir()
        config = RunConfig.model_validate({"rewards": {"terms": terms}})
        return Run(RunStore(tmp_path / name), config, run_info(tmp_path))

    found = compare([judged("small", "a", "s"), judged("large", "a", "l")]).differences
    assert found == {"rewards.terms[1].model": ["s", "l"]}


def test_a_run_that_used_far_more_leaves_room_for_the_others(tmp_path):
    """What all of them have used takes a good part of the width, not a fortieth."""
    from matplotlib.figure import Figure

    runs = [run_of(tmp_path, "short", [0.1], 1), run_of(tmp_path, "long", [0.1], 40)]
    found, axes = compare(runs), Figure().subplots()
    _scale(axes, found, 160)
    axes.set_xlim(right=160)
    at_same, at_end = axes.transAxes.inverted().transform(
        axes.transData.transform([(found.same, 0), (160, 0)])
    )[:, 0]
    assert found.same == 4 and at_same / at_end > 0.3
    assert picture(runs, found).startswith(b"\x89PNG")


def test_a_score_that_no_evaluation_has_is_named(runs):
    with pytest.raises(DataError, match=r"'g'; they have f, reward"):
        compare(runs, "g")


def driven(*hours, dollars=()):
    return [
        {"driven_s": 3600.0 * each, **({"dollars": cost} if cost else {})}
        for each, cost in zip(hours, dollars or [0.0] * len(hours), strict=True)
    ]


@pytest.mark.parametrize(
    ("dollars", "text"),
    [(0.0, "0.00"), (0.00004, "0.000040"), (0.0654, "0.065"), (0.096, "0.10"), (2.061, "2.06")],
)
def test_less_than_ten_cents_are_told_as_well(dollars, text):
    assert money(dollars) == text


@pytest.fixture
def priced(tmp_path):
    """One takes two hours a step and the other half of one, of which each costs twice as much."""
    slow = driven(2, 4, 6, 8, dollars=[0, 1, 2, 3])
    fast = driven(0.5, 1, 1.5, 2, dollars=[1, 2, 3, 4])
    return [
        run_of(tmp_path, "slow", [0.1, 0.2, 0.3], 100, slow),
        run_of(tmp_path, "fast", [0.1, 0.6, 0.5], 50, fast),
    ]


@pytest.mark.parametrize(
    ("by", "same", "reached"),
    [
        ("steps", 4, [0.3, 0.5]),
        ("tokens", 200, [0.2, 0.5]),
        ("hours", 2.0, [0.1, 0.5]),
        ("dollars", 3.0, [0.3, 0.6]),
    ],
)
def test_runs_are_compared_at_what_all_of_them_have_used(priced, by, same, reached):
    """The second evaluation is after two steps, of four."""
    found = compare(priced, by=by)
    assert (found.by, found.same) == (by, same)
    assert [run.at_same for run in found.runs] == reached
    assert picture(priced, found).startswith(b"\x89PNG")


def test_a_step_without_a_price_before_the_first_has_cost_nothing(priced):
    """The one paid nothing in its first step, and is not left out there."""
    assert _used(priced[0], "slow", "dollars") == {0: 0, 1: 0, 2: 1, 3: 2, 4: 3}


def test_what_was_not_counted_is_named(runs, priced_by_the_call):
    with pytest.raises(DataError, match="slow has no hours: they were not counted by step"):
        compare(runs, by="hours")
    with pytest.raises(DataError, match=r"slow has no dollars: nothing that it uses has a price"):
        compare(runs, by="dollars")
    with pytest.raises(DataError, match="old has no dollars: they were not counted by step"):
        compare([priced_by_the_call, runs[0]], by="dollars")
    assert [run.dollars for run in compare([priced_by_the_call, runs[0]]).runs] == [0.5, None]


def fork_of(run):
    known = {"state_id": "", "history_id": "", "fingerprint": "f"}
    parent = Parent(run_id="parent", uid="0" * 32, step=2, **known)
    return Run(run.store, run.config, dataclasses.replace(run.info, parent=parent))


def test_what_a_fork_has_used_is_its_parents_too(priced):
    fork = fork_of(priced[0])
    fork.note(busy_s=4 * 3600.0)  # its own
    found = compare([fork, priced[1]], by="hours").runs[0]
    assert (found.hours, found.dollars) == (8.0, 3.0)


def test_a_fork_whose_parent_counted_nothing_is_named(tmp_path, priced):
    fork = fork_of(run_of(tmp_path, "fork", [0.1], 100))
    for step in (3, 4):  # its own
        fork.append("usage.jsonl", {"step": step, "driven_s": 60.0})
    with pytest.raises(DataError, match=r"fork has no hours: .* or a fork's parent"):
        compare([fork, priced[1]], by="hours")


@pytest.fixture
def priced_by_the_call(tmp_path):
    """A run of an earlier version on Modal."""
    run = run_of(tmp_path, "old", [0.1], 100)
    cost = {"step": 0, "stage": "train_step", "kind": "useful", "dollars": 0.5}
    (run.store.root / "costs.jsonl").write_text(json.dumps(cost) + "\n")
    return run


@pytest.fixture
def figures(monkeypatch):
    """Those that are drawn."""
    drawn, draw = [], FigureCanvasAgg.draw

    def note(canvas):
        drawn.append(canvas.figure)
        draw(canvas)

    monkeypatch.setattr(FigureCanvasAgg, "draw", note)
    return drawn


@pytest.mark.parametrize("counted", ["num_prepared_rows", "num_unscored"])
def test_training_without_rewards_is_drawn_by_its_loss_whatever_evaluations_are_compared_by(
    counted, tmp_path, figures
):
    runs = [run_of(tmp_path, name, [], 100) for name in ("one", "other")]
    for run in runs:
        rows = [{"step": n, "reward": None, "loss": 3.0, counted: 4} for n in (1, 2)]
        run.logs.replace("metrics.jsonl", rows)
        run.append("evaluations.jsonl", {"step": 2, "accuracy": 0.5})
    picture(runs, compare(runs, "accuracy"))
    training, held_out = figures[-1].axes
    assert (training.get_ylabel(), held_out.get_ylabel()) == ("mean loss", "accuracy")
    assert [list(line.get_ydata()) for line in training.lines[:2]] == [[3.0, 3.0]] * 2


def test_before_the_first_step_runs_are_compared_by_what_their_evaluations_have(tmp_path):
    runs = [run_of(tmp_path, name, [0.1], 100) for name in ("one", "other")]
    for run in runs:
        run.logs.replace("metrics.jsonl", [])
    assert compare(runs).metric == "reward"
    for run in runs:
        run.logs.replace("evaluations.jsonl", [{"step": 0, "loss": 0.5}])
    assert compare(runs).metric == "loss"


def test_a_loss_is_told_as_one_and_one_that_is_not_finite_is_never_the_best(tmp_path, capsys):
    (tmp_path / "rows").mkdir()
    run = Run(RunStore(tmp_path / "rows"), RunConfig(), run_info(tmp_path))
    for step in (1, 2):
        run.append(
            "metrics.jsonl", {"step": step, "reward": None, "loss": 0.5, "num_prepared_rows": 4}
        )
        run.append("evaluations.jsonl", {"step": step, "loss": [nan, 0.7][step - 1]})
    found = compare([run, run_of(tmp_path, "slow", [0.1], 100)], "loss")
    assert (found.runs[0].best, found.runs[0].best_step, found.runs[0].merit) == (0.7, 2, -0.5)
    show_comparison(found)
    lines = capsys.readouterr().out.splitlines()
    told = [line.split("  ") for line in lines if "created" in line]
    assert [("loss 0.500" in each, "0.250" in each) for each in told] == [
        (True, False),
        (False, True),
    ]
