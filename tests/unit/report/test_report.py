"""What a run reports of steps that reward functions failed on."""

import dataclasses
import json

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from mortal.terminal.display import console, show_run
from mortal_steps.config import RewardsConfig
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.batches import ScoredRollouts
from mortal_steps.report.curve import reward_curve
from mortal_steps.report.evaluations import DIFFERING, mean_metrics, mean_scores
from mortal_steps.report.progress import Speed
from mortal_steps.report.quarantine import Quarantined, quarantine_in_words
from mortal_steps.report.recorder import Recorder
from mortal_steps.report.summary import summarize
from mortal_steps.rewards.source_history import (
    SOURCES_FILE,
    RewardSources,
    ScoredWith,
    SourceHistory,
)
from mortal_steps.runs.logs import USAGE
from mortal_steps.runs.run import Run
from mortal_steps.store import RunStore
from mortal_steps.types import (
    BatchRef,
    Completion,
    Episode,
    Evaluation,
    GeneratedGroup,
    GeneratedShard,
    GenerationRef,
    PolicyVersion,
    Problem,
    RewardedShard,
    RewardFailure,
    RewardRef,
    StageTiming,
    StepResult,
)
from mortal_steps.types.identity import Parent
from tests.support.run_info import NO_FILE, run_info

SPEED = Speed(step_s=0.5, tokens_per_s=200.0)


@pytest.fixture
def make_run(tmp_path):
    def make(on_error):
        rewards = RewardsConfig(functions=("m:a", "m:b"), on_error=on_error)
        run = Run(RunStore(tmp_path / "run"), RunConfig(rewards=rewards), run_info(tmp_path))
        run.update()
        return run

    return make


@pytest.fixture
def figures(monkeypatch):
    """Those that are drawn."""
    drawn, draw = [], FigureCanvasAgg.draw

    def note(canvas):
        drawn.append(canvas.figure)
        draw(canvas)

    monkeypatch.setattr(FigureCanvasAgg, "draw", note)
    return drawn


def failure(problem_id, function="a", message="raised KeyError: 'x'"):
    return RewardFailure(
        function=function,
        problem_id=problem_id,
        num_completions=2,
        kind="exception",
        message=message,
        attempts=4,
    )


def record_step(
    run,
    recorder,
    step,
    *,
    failures=(),
    failed_calls=None,
    reward_sum=1.0,
    metrics=None,
    trl=None,
    file=NO_FILE,
):
    """A step of one shard of one problem with two completions."""
    timing = StageTiming(stage="x", step=step)
    rewarded = RewardedShard(
        step=step, shard=0, generation_sha256="", rewards=[], failures=tuple(failures)
    )
    generation = GenerationRef(
        step=step,
        shard=0,
        file=file,
        num_completions=2,
        num_tokens=5,
        policy_version=step,
        timing=timing,
    )
    reward = RewardRef(
        step=step,
        shard=0,
        file=run.store.write_record(f"rewards-{step}.parquet", rewarded, RewardedShard),
        generation=generation,
        reward_sum=0.0 if failures else reward_sum,
        num_scored=0 if failures else 2,
        timing=timing,
        failed_calls=failed_calls or {},
        metrics=metrics or {},
        masked={failure.function: 2 for failure in failures},
    )
    result = StepResult(
        step=step,
        metrics={"loss": 0.0, **(trl or {})},
        optimizer_steps=step + 1,
        batch_sha256="",
        state_id="",
        history_id="",
        weights_digest="",
        random_sha256="",
        weights=None,
        timing=timing,
    )
    batch = BatchRef(step=step, file=NO_FILE, num_problems=1, timing=timing)
    return recorder.step(batch, ScoredRollouts(rewards=[reward]), result)


def test_failed_calls_are_counted_where_there_are_any(make_run):
    run = make_run("raise")
    recorder = Recorder(run)
    record_step(run, recorder, 0)
    record_step(run, recorder, 1, failed_calls={"b": 1})
    counts = [{k: v for k, v in row.items() if k.startswith("rewards/")} for row in run.metrics()]
    assert counts == [{}, {"rewards/b/failed_calls": 1}]


def test_what_functions_log_stands_beside_what_trl_does(make_run):
    run = make_run("raise")
    recorder = Recorder(run)
    record_step(run, recorder, 0)
    record_step(run, recorder, 1, metrics={"accuracy": 0.25, "loss": 3.0, "reward": 4.0})
    before, row = run.metrics()
    assert row.keys() - before.keys() == {"accuracy", "log_metric/loss", "log_metric/reward"}
    assert (row["accuracy"], row["loss"], row["log_metric/loss"]) == (0.25, 0.0, 3.0)


def test_a_fork_goes_on_from_what_its_parent_had_used(tmp_path):
    """The parent an hour and two dollars; the fork a minute and half a dollar since."""
    known = {"state_id": "", "history_id": "", "fingerprint": "f"}
    parent = Parent(run_id="parent", uid="0" * 32, step=1, **known)
    info = dataclasses.replace(run_info(tmp_path), parent=parent)
    run = Run(RunStore(tmp_path), RunConfig(), info)
    run.append(USAGE, {"step": 1, "driven_s": 3600.0, "dollars": 2.0})
    run.update(step=1)
    recorder = Recorder(run)
    run.note(busy_s=60.0)
    recorder.usage(2, 0.5)
    assert run.logs.read(USAGE)[1:] == [{"step": 2, "driven_s": 3660.0, "dollars": 2.5}]


def test_the_reward_of_a_step_is_what_trl_logs_to_the_last_digit(make_run):
    run = make_run("mask")
    recorder = Recorder(run)
    record_step(run, recorder, 0, reward_sum=0.2, trl={"reward": 0.10000000149011612})
    record_step(run, recorder, 1, failures=[failure("p")], trl={"reward": float("nan")})
    assert [row["reward"] for row in run.metrics()] == [0.10000000149011612, None]


def test_a_logged_metric_is_the_mean_over_all_completions():
    shards = [({"accuracy": 1.0, "rare": 2.0}, 8), ({"accuracy": 0.5}, 4)]
    assert mean_metrics(shards) == {"accuracy": 10 / 12, "rare": 2.0}


def generated(run, path, *differences):
    completions = [
        Completion(
            token_ids=[1],
            logprobs=[0.0],
            text="",
            finish_reason="stop",
            seed=number,
            policy_version=PolicyVersion(0),
            episode=Episode(stop="done"),
            differing_answer=difference,
        )
        for number, difference in enumerate(differences)
    ]
    problem = Problem(id="train-7", prompt="?")
    group = GeneratedGroup(problem=problem, prompt_ids=[1], completions=completions)
    shard = GeneratedShard(step=0, shard=0, policy_version=PolicyVersion(0), groups=[group])
    return run.store.write_record(path, shard, GeneratedShard)


@pytest.mark.parametrize("stage", ["generate", "evaluate"])
def test_an_answer_that_changed_is_told_of_by_name(make_run, stage):
    run = make_run("mask")
    recorder = Recorder(run)
    path = "steps/000000/generations-0.parquet"
    changed = "tool ask: ask(name='x') gives another answer: 'a' before, 'b' now"
    if stage == "generate":
        file = generated(run, path, None, changed)
        record_step(run, recorder, 0, metrics={DIFFERING: 0.5}, file=file)
        assert run.metrics()[0][DIFFERING] == 0.5
    else:
        generated(run, "evaluations/000001/generations-0.parquet", None, changed)
        metrics, timing = {"reward": 1.0, DIFFERING: 0.5}, StageTiming(stage="evaluate", step=1)
        recorder.evaluation(Evaluation(step=1, num_problems=1, metrics=metrics, timing=timing))
    [notice] = recorder.alerts.take()
    assert (notice.event, notice.value) == ("mortal.environment.differs", 0.5)
    for part in ("50 %", "problem train-7, generation 1", changed):
        assert part in notice.text


def test_a_share_of_episodes_that_a_shard_does_not_say_is_0():
    shards = [({"episodes/turns": 2.0, DIFFERING: 0.5}, 4), ({"episodes/turns": 1.0}, 12)]
    assert mean_metrics(shards) == {"episodes/turns": 1.25, DIFFERING: 0.125}


def test_functions_called_as_our_own_columns_keep_their_means():
    config = RunConfig(rewards={"functions": ("m:reward", "m:step"), "weights": (1.0, 3.0)})
    shard = RewardedShard(
        step=0,
        shard=0,
        generation_sha256="",
        rewards=[[{"reward": 1.0, "step": 2.0}]],
        metrics={"step": 5.0, "accuracy": 0.5},
    )
    assert mean_scores(config.eval_rewards, [shard], {}) == {
        "rewards/reward": 1.0,
        "rewards/step": 2.0,
        "reward": 7.0,
        "log_metric/step": 5.0,
        "accuracy": 0.5,
    }


def test_each_set_of_held_out_problems_has_scores_of_its_own():
    config = RunConfig(rewards={"functions": ("m:a", "m:b"), "weights": (1.0, 2.0)})
    scores = [{"a": 1.0, "b": 1.0}, {"a": 0.0, "b": None}, {"a": 4.0, "b": 0.0}, {"a": None}]
    rows = [[{"a": None, "b": None} | row] for row in scores]
    shards = [
        RewardedShard(step=0, shard=shard, generation_sha256="", rewards=rows[2 * shard :][:2])
        for shard in range(2)
    ]
    assert mean_scores(config.eval_rewards, shards, {"easy": 1, "hard": 2, "none": 1}) == {
        "a": 5 / 3,
        "b": 0.5,
        "reward": 7 / 3,
        "eval_easy_reward": 3.0,
        "eval_easy_rewards/a/mean": 1.0,
        "eval_easy_rewards/b/mean": 1.0,
        "eval_hard_reward": 2.0,
        "eval_hard_rewards/a/mean": 2.0,
        "eval_hard_rewards/b/mean": 0.0,
    }


def test_a_step_without_scores_has_no_reward_rather_than_0(make_run):
    run = make_run("mask")
    recorder = Recorder(run)
    whole = record_step(run, recorder, 0, reward_sum=3.0)
    assert whole.text(SPEED).startswith("reward 1.500  loss")
    report = record_step(run, recorder, 1, failures=[failure("p")], failed_calls={"a": 4})
    assert report.text(SPEED).startswith("reward -  1 masked  loss")
    first, second = run.metrics()
    zeros = {f"rewards/{name}/{count}": 0 for name in "ab" for count in ("failed_calls", "masked")}
    assert zeros.items() <= first.items()
    assert {**zeros, "rewards/a/failed_calls": 4, "rewards/a/masked": 2}.items() <= second.items()
    assert (first["reward"], second["reward"]) == (1.5, None)
    assert summarize(run).reward == run.score(2) == 1.5
    timing = StageTiming(stage="evaluate", step=2)
    recorder.evaluation(Evaluation(step=2, num_problems=1, metrics={}, timing=timing))
    recorder.report()
    assert run.store.path("reward_curve.png").exists()


def test_failures_of_environments_are_called_so():
    def failed(kind):
        about = {"problem_id": "p", "function": "f", "message": "refused"}
        return Quarantined(**about, kind=kind, times=1, last_step=2)

    assert "1 problem that an environment failed" in quarantine_in_words([failed("environment")])
    both = quarantine_in_words([failed("timeout"), failed("environment")])
    assert "a reward function or an environment failed" in both


def test_quarantined_problems_are_listed(make_run):
    run = make_run("mask")
    recorder = Recorder(run)
    record_step(run, recorder, 0, failures=[failure("p")])
    twice = [failure("q", "b"), failure("p", message="[late]"), failure("p", "b")]
    assert record_step(run, recorder, 1, failures=twice).num_masked == 2
    evaluation = Evaluation(
        step=2,
        num_problems=1,
        metrics={},
        timing=StageTiming(stage="evaluate", step=2),
        failures=(failure("held-out"),),
    )
    recorder.evaluation(evaluation)
    summary = summarize(run)
    assert [
        (one.problem_id, one.function, one.times, one.last_step) for one in summary.quarantined
    ] == [
        ("p", "a", 2, 2),
        ("q", "b", 1, 2),
        ("p", "b", 1, 2),
        ("held-out", "a", 1, 2),
    ]
    with console.capture() as shown:
        show_run(summary)
    assert "3 problems that a reward function failed on" in shown.get()
    assert "[late]" in shown.get()
    rows = [json.loads(line) for line in run.store.path("quarantine.jsonl").open()]
    assert [row["stage"] for row in rows] == ["reward"] * 4 + ["evaluate"]
    run.go_back_to(1)
    assert [one.problem_id for one in summarize(run).quarantined] == ["p"]


def test_copies_that_people_put_beside_records_are_left_alone(make_run):
    run = make_run("raise")
    for name in ("steps/000003.bak", "evaluations/000002.bak", "evaluations/000002"):
        run.store.path(name).mkdir(parents=True)
    run.store.path("metrics.jsonl").write_text("damaged\n")
    run.store.path("evaluations.jsonl").write_text("damaged\n")
    run.acquire()
    run.update(step=2)
    run.store.path("evaluations.jsonl").write_text("damaged again\n")
    Recorder(run)
    run.release()
    assert run.store.path("steps/000003.bak").is_dir()
    assert run.store.path("evaluations/000002.bak").is_dir()


@pytest.mark.parametrize(
    ("num_steps", "expected"),
    [(0, None), (1, None), (3, (0, 2, 1)), (41, (9.5, 30.5, 20))],
)
def test_the_two_ends_of_a_short_run_do_not_overlap(make_run, num_steps, expected):
    run = make_run("raise")
    run.append("metrics.jsonl", *({"step": n + 1, "reward": float(n)} for n in range(num_steps)))
    trend = summarize(run).reward_trend
    assert (trend and (trend["first"], trend["last"], trend["steps"])) == expected


def test_the_picture_shows_rewards_of_training_and_of_held_out_problems(figures):
    row = {"step": 1, "reward": 0.5}
    picture = reward_curve("x", [row], [row])
    assert picture.startswith(b"\x89PNG") and len(picture) < 60_000
    figure = figures[-1]
    _, labels = figure.axes[0].get_legend_handles_labels()
    assert labels[0].startswith("training") and labels[-1].startswith("held-out")
    assert len(figure.axes) == 1, "TRL has said nothing of lengths"


def test_a_loss_and_the_rewards_by_which_it_is_judged_have_an_axis_each(figures):
    """As where a teacher is learned from, and held-out problems are scored."""
    learned = {"step": 1, "reward": None, "loss": 3.0, "num_unscored": 4}
    reward_curve("x", [learned], [{"step": 1, "reward": 0.5}])
    losses, rewards = figures[-1].axes
    assert (losses.get_ylabel(), rewards.get_ylabel()) == ("mean loss", "held-out reward")
    assert [line.get_label() for line in rewards.lines] == ["held-out problems"]
    assert [list(line.get_ydata()) for line in losses.lines] == [[3.0], [3.0]]
    labels = [text.get_text() for text in rewards.get_legend().get_texts()]
    assert labels[0] == "training, each step" and labels[-1] == "held-out problems"
    reward_curve("x", [learned], [{"step": 1, "loss": 0.5}])
    assert len(figures[-1].axes) == 1


def test_below_the_rewards_are_lengths_entropy_and_functions(figures):
    row = {"reward": 0.5, "entropy": 1.0, "completions/mean_length": 3.0}
    row |= {"completions/max_length": 8.0, "rewards/a/mean": 0.2, "rewards/b/mean": 0.8}
    rows = [{**row, "step": step} for step in range(1, 11)]
    reward_curve("x", rows[:9], [])
    assert len(figures[-1].axes) == 1, "nine steps say nothing of lengths"
    reward_curve("x", rows, [])
    _, *below = figures[-1].axes
    assert [axes.get_title().split(" (")[0] for axes in below] == [
        "completion length",
        "entropy",
        "each reward function",
    ]
    assert [line.get_label() for line in below[2].lines[:2]] == ["a", "b"]


def test_the_report_is_due_some_minutes_after_the_last_one(make_run, monkeypatch):
    recorder = Recorder(make_run("raise"))
    assert not recorder.report_due()
    monkeypatch.setattr("mortal_steps.report.recorder.REPORT_EVERY_S", 0.0)
    assert recorder.report_due()


def test_a_report_that_cannot_be_written_ends_nothing(make_run, caplog):
    run = make_run("raise")
    recorder = Recorder(run)
    record_step(run, recorder, 0)
    run.store.path("reward_curve.png").mkdir()
    recorder.report()
    assert "the report is not written: cannot write" in caplog.text


def test_packages_that_are_noted_late_are_no_changed_rewards(make_run):
    run = make_run("mask")
    noted = [
        ScoredWith(step=step, sources=RewardSources(files={}, packages=packages), noted_at=0.0)
        for step, packages in ((0, None), (4, {"textarena": "0.7.4"}), (6, {"textarena": "0.7.5"}))
    ]
    run.store.write_record(SOURCES_FILE, SourceHistory(entries=tuple(noted)), SourceHistory)
    (changed,) = summarize(run).changed_rewards
    assert changed["step"] == 6
