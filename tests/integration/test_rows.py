"""A run that learns from rows of a dataset, from its configuration to its final model."""

import json
import random
from types import SimpleNamespace

import pyarrow
import pytest

from mortal_flows import training
from mortal_steps.errors import ConfigError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.algorithms.rows.preparing import open_prepared
from mortal_steps.policy.batches.prepared_rows import EpochOrder
from mortal_steps.policy.journal import find_entry
from mortal_steps.report.recorder import Recorder
from mortal_steps.report.summary import summarize
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from tests.support.bare_flow import Killed, bare_in, go_on
from tests.support.refused import refused

NUM_ROWS, HELD_OUT, EPOCHS, STEPS_PER_EPOCH = 40, 6, 3, 5


def rows_of(folder):
    draw = random.Random(0)
    words = ["".join(draw.choices("abcdefgh", k=3)) for _ in range(NUM_ROWS)]
    rows = [
        {"prompt": f"{number}{word}=", "completion": word[::-1]}
        for number, word in enumerate(words)
    ]
    path = folder / "rows.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def config_of(folder, run_id, **changed):
    values = {
        "run_id": run_id,
        "runs_dir": str(folder / "runs"),
        "algorithm": {"type": "sft"},
        "model": {"new": {"alphabet": "abcdefgh0123456789="}},
        "data": {"source": str(rows_of(folder)), "eval_samples": HELD_OUT},
        "training": {
            "batch_size": 8,
            "num_epochs": EPOCHS,
            "learning_rate": 3e-3,
            "gradient_accumulation_steps": 2,
            "trl": {"neftune_noise_alpha": 5.0},
        },
        "evaluation": {"eval_steps": 4, "on_start": True},
        "checkpoints": {"save_steps": 4},
    }
    return RunConfig.model_validate(values | changed)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run that nothing happens to, and one that is killed after each of four steps: in the middle
    of an epoch, at its end, where an evaluation is due, and at the last."""
    folder = tmp_path_factory.mktemp("rows")
    with bare_in(folder):
        whole = go_on(config_of(folder, "whole"))
        for step in (1, 4, 7, 14):
            with pytest.raises(Killed):
                go_on(config_of(folder, "killed"), killed_after=step)
        killed = go_on(config_of(folder, "killed"))
    return whole, killed


def test_killed_four_times_it_ends_with_the_same_bits(runs):
    whole, killed = runs
    assert killed.manifest.attempts == 5
    assert killed.manifest.final == whole.manifest.final
    for log in ("metrics.jsonl", "evaluations.jsonl"):
        assert killed.store.path(log).read_bytes() == whole.store.path(log).read_bytes()


def test_the_next_step_is_taken_while_one_is_recorded_and_a_kill_then_changes_nothing(runs):
    whole, _ = runs
    folder = whole.store.root.parent.parent
    # Nothing comes before the step that follows the second and the sixth; after the fourth, an
    # evaluation does, and after the fifth, the order of the next epoch.
    config = config_of(folder, "ahead", checkpoints={"save_steps": 4, "background": False})
    taken_ahead = {2: True, 4: False, 5: False, 6: True}
    for done, is_taken in taken_ahead.items():

        class Dying(Recorder):
            def usage(self, step, dollars, *, dies_at=done):
                if step == dies_at:
                    raise Killed
                super().usage(step, dollars)

        with bare_in(folder), pytest.raises(Killed):
            go_on(config, recorder=Dying)
        store = find_run(folder / "runs", "ahead").store
        assert store.path(f"steps/{done - 1:06d}/result.json").exists()
        assert store.path(f"steps/{done:06d}/result.json").exists() is is_taken
    with bare_in(folder):
        ahead = go_on(config)
    assert ahead.manifest.attempts == len(taken_ahead) + 1
    assert ahead.manifest.final == whole.manifest.final
    for log in ("metrics.jsonl", "evaluations.jsonl"):
        assert ahead.store.path(log).read_bytes() == whole.store.path(log).read_bytes()


def test_train_steps_that_are_taken_ahead_count_as_time_in_which_the_run_was_driven(
    tmp_path, monkeypatch
):
    now = 0.0

    class Ticking(Recorder):
        """After `usage`, the actor may be at the next step already."""

        def usage(self, step, dollars):
            nonlocal now
            super().usage(step, dollars)
            now += 10

    monkeypatch.setattr(training, "time", SimpleNamespace(monotonic=lambda: now))
    changed = {"checkpoints": {"save_steps": 4, "background": False}}
    with bare_in(tmp_path):
        run = go_on(config_of(tmp_path, "ticking", **changed), recorder=Ticking)
    steps = run.info.num_steps
    assert steps == 15
    ahead = [done for done in range(1, steps) if done % 4 and done % 5]
    assert run.manifest.busy_s == 10 * len(ahead)


def test_each_epoch_has_each_row_once_in_an_order_of_its_own(runs):
    whole, _ = runs
    rows = open_prepared(whole.store.path("data/prepared"))
    orders = []
    for epoch in range(EPOCHS):
        (_, order), (_, other) = (
            run.store.find_record(f"orders/{epoch:06d}.json", EpochOrder) for run in runs
        )
        assert order == other
        orders.append([row for each in order.micro_batches for row in each])
    assert all(sorted(order) == list(range(NUM_ROWS - HELD_OUT)) for order in orders)
    assert len(set(map(tuple, orders))) == EPOCHS
    assert len(rows["train"]) == NUM_ROWS - HELD_OUT and len(rows["eval"]) == HELD_OUT


def test_a_million_prepared_rows_are_a_thousand_pieces(runs):
    """Whoever opens the file makes an object of each piece."""
    whole, _ = runs
    for name in ("train", "eval"):
        with pyarrow.memory_map(str(whole.store.path(f"data/prepared/{name}.arrow"))) as file:
            assert pyarrow.ipc.open_stream(file).read_all().column(0).num_chunks == 1


def test_a_step_is_some_hundred_bytes_and_the_last_of_an_epoch_has_the_rest(runs):
    whole, _ = runs
    entries = [find_entry(whole.store, step).request.batch for step in range(whole.info.num_steps)]
    assert whole.info.num_steps == EPOCHS * STEPS_PER_EPOCH
    assert [entry.num_rows for entry in entries[:STEPS_PER_EPOCH]] == [8, 8, 8, 8, 2]
    assert whole.store.path("steps/000003/journal.json").stat().st_size < 900
    assert not list(whole.store.path("steps/000003").glob("batch*"))
    assert not whole.store.path("weights").exists(), "nobody samples, so nothing is published"


def test_held_out_rows_are_judged_by_their_loss(runs):
    whole, _ = runs
    evaluations = [json.loads(line) for line in whole.store.path("evaluations.jsonl").open()]
    assert [row["step"] for row in evaluations] == [0, 4, 8, 12, 15]
    assert evaluations[-1]["loss"] < evaluations[0]["loss"]
    assert "reward" not in evaluations[0]
    summary = summarize(whole)
    assert summary.merit == "loss" and not summary.warnings
    assert summary.reward is None and summary.loss_trend["last"] < summary.loss_trend["first"]
    assert summary.headline.startswith(f"step 15/15, loss {summary.loss:.3f}, held out: loss ")
    assert whole.manifest.best_step == min(evaluations[1:], key=lambda row: row["loss"])["step"]


def test_of_several_sets_each_has_its_loss_and_all_rows_have_one(tmp_path):
    rows = rows_of(tmp_path).read_text().splitlines()
    for name, first, last in (("few", 0, 2), ("many", 2, 8)):
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows[first:last]))
    sets = {name: str(tmp_path / f"{name}.jsonl") for name in ("few", "many")}
    config = config_of(
        tmp_path,
        "sets",
        data={"source": str(tmp_path / "rows.jsonl"), "eval_sets": sets},
        training={"batch_size": 16, "max_steps": 2},
        evaluation={"eval_steps": 2, "on_start": False},
    )
    with bare_in(tmp_path):
        run = go_on(config)
    (row,) = [json.loads(line) for line in run.store.path("evaluations.jsonl").open()]
    few, many = row["eval_few_loss"], row["eval_many_loss"]
    assert row["loss"] == (2 * few + 6 * many) / 8
    assert run.manifest.best_step == 2


def test_a_goal_for_a_score_that_trl_does_not_have_ends_with_the_first_evaluation(tmp_path):
    training = {"batch_size": 16, "until": {"metric": "mean_token_acuracy", "goal": 0.9}}
    with bare_in(tmp_path), refused(ConfigError, "did you mean mean_token_accuracy?"):
        go_on(config_of(tmp_path, "goal", training=training))
    later = {"evaluation": {"eval_steps": 2, "on_start": False}, "checkpoints": {"save_steps": 3}}
    with bare_in(tmp_path), refused(ConfigError, "did you mean mean_token_accuracy?"):
        go_on(config_of(tmp_path, "later", training=training, **later))
    saved = find_run(tmp_path / "runs", "later").manifest.checkpoints
    assert [each.step for each in saved] == [2], "what was trained until then is saved"
    assert find_run(tmp_path / "runs", "goal").manifest.step == 0


def test_a_damaged_row_is_found(runs):
    whole, _ = runs
    assert [file for file in check_run(whole.store.root.parent, "whole").files if file.damage] == []
    prepared = whole.store.path("data/prepared/train.arrow")
    content = bytearray(prepared.read_bytes())
    content[len(content) // 2] ^= 1
    prepared.write_bytes(content)
    report = check_run(whole.store.root.parent, "whole")
    (damaged,) = [file for file in report.files if file.damage]
    assert str(damaged.path).endswith("data/prepared/train.arrow")
    content[len(content) // 2] ^= 1
    prepared.write_bytes(content)
    assert find_run(whole.store.root.parent, "whole").is_complete()
