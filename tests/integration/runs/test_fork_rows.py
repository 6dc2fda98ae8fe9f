"""A fork of a run that learns from rows goes on in the order of its parent's epoch, or begins with
rows of its own; what could mean two things is refused."""

import json
import os
import random

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.forking.fork import fork_run
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.batches.prepared_rows import EpochOrder
from mortal_steps.policy.journal import find_entry
from mortal_steps.runs.verify import check_run
from mortal_steps.types.identity import CountedFrom
from tests.support.bare_flow import Killed, bare_in, go_on
from tests.support.damage import flip_a_bit

NUM_ROWS, HELD_OUT, PER_EPOCH = 40, 6, 5
OTHER_ROWS = 20


def write(path, count, seed):
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdefgh", k=draw.randint(2, 6))) for _ in range(count)]
    rows = [
        {"prompt": f"{number}{word}=", "completion": word[::-1]}
        for number, word in enumerate(words)
    ]
    path.write_text("\n".join(map(json.dumps, rows)))


def config_of(folder, run_id, **training):
    return RunConfig.model_validate(
        {
            "run_id": run_id,
            "runs_dir": str(folder / "runs"),
            "algorithm": {"type": "sft"},
            "model": {"new": {"alphabet": "abcdefgh0123456789=", "hidden_size": 32}},
            "data": {"source": "rows.jsonl", "eval_samples": HELD_OUT},
            "training": {
                "batch_size": 8,
                "num_epochs": 3,
                "learning_rate": 3e-3,
                "gradient_accumulation_steps": 2,
                "trl": {
                    "neftune_noise_alpha": 5.0,
                    "train_sampling_strategy": "group_by_length",
                    "lr_scheduler_type": "constant",
                },
                **training,
            },
            "evaluation": {"eval_steps": PER_EPOCH},
            "checkpoints": {"save_steps": 1, "keep_last": 99},
        }
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    write(folder / "rows.jsonl", NUM_ROWS, seed=0)
    write(folder / "others.jsonl", OTHER_ROWS, seed=1)
    with bare_in(folder):
        yield folder


@pytest.fixture(scope="module")
def parent(folder):
    """A run of three epochs of five steps, with a checkpoint after each step."""
    return go_on(config_of(folder, "parent"))


def rows_by_epoch(run):
    """Return the rows on which each step of a run trained, by the number of the epoch."""
    found = {}
    for step in range(run.info.first_step, run.info.num_steps):
        batch = find_entry(run.store, step).request.batch
        order = run.store.read_record(batch.order, EpochOrder)
        rows = [row for each in order.micro_batches[batch.first : batch.stop] for row in each]
        found.setdefault(order.epoch, []).extend(rows)
    return found


def is_whole(run):
    check = check_run(run.store.root.parent, run.info.run_id)
    checked = [file.path for file in check.files if file.path.parent.name == "orders"]
    assert len(checked) == len(set(checked)), "an order is read once, and not for each step"
    return [file for file in check.files if file.damage] == []


@pytest.mark.parametrize("step", [7, 5], ids=["within an epoch", "where one begins"])
def test_without_changes_it_ends_with_its_parents_bits(step, parent):
    fork = fork_run(parent, at_step=step)
    for name in ("train", "eval"):
        file = f"data/prepared/{name}.arrow"
        assert os.path.samefile(fork.store.path(file), parent.store.path(file))
    fork = go_on(fork.config)
    assert fork.manifest.final == parent.manifest.final
    for log in ("metrics.jsonl", "evaluations.jsonl"):
        assert fork.store.path(log).read_bytes() == parent.store.path(log).read_bytes()
    assert is_whole(fork)


def test_orders_that_are_lost_together_are_drawn_again_one_after_the_other(folder, parent):
    """The one under way needs the state with which its epoch began, which the others lead to."""
    config = config_of(folder, "lost")
    few = config.checkpoints.model_copy(
        update={"keep_last": 2, "keep_best": False, "background": False}
    )
    config = config.model_copy(update={"checkpoints": few})
    with pytest.raises(Killed):
        go_on(config, killed_after=7)
    orders = sorted((folder / "runs/lost/orders").glob("*.json"))
    assert [path.stem for path in orders] == ["000000", "000001"]
    for path in orders:
        flip_a_bit(path)
    run = go_on(config)
    assert run.manifest.final == parent.manifest.final
    assert rows_by_epoch(run) == rows_by_epoch(parent) and is_whole(run)


@pytest.mark.parametrize(
    ("change", "best"),
    [("training.learning_rate=1e-2", PER_EPOCH), ("training.trl.completion_only_loss=false", None)],
)
def test_another_loss_is_not_compared_with_that_of_the_checkpoint_it_begins_with(
    parent, change, best
):
    assert fork_run(parent, [change], at_step=PER_EPOCH).manifest.best_step == best


def test_tokens_of_its_parent_are_not_those_that_end_it(parent):
    counted = {row["step"]: int(row["num_tokens"]) for row in parent.metrics()}
    own = counted[10] - counted[7]
    ended = {}
    for most in (own, own + 1):
        change = [f"training.until.max_tokens={most}"]
        ended[most] = go_on(fork_run(parent, change, at_step=7).config).ended
    assert ended[own].step == 10 and ended[own + 1] is None


def test_with_other_settings_the_epoch_under_way_goes_on(parent):
    changes = [
        "training.learning_rate=1e-2",
        "training.gradient_checkpointing=false",
        "training.trl.weight_decay=0.1",
    ]
    fork = go_on(fork_run(parent, changes, at_step=7).config)
    before = find_entry(parent.store, 6).request.batch
    order = parent.store.read_record(before.order, EpochOrder).micro_batches
    left = [row for each in order[before.stop :] for row in each]
    trained = rows_by_epoch(fork)
    assert trained[1] == left
    assert sorted(trained[2]) == list(range(NUM_ROWS - HELD_OUT))
    assert fork.info.counted_from == CountedFrom() and fork.info.num_steps == 3 * PER_EPOCH
    assert fork.manifest.final != parent.manifest.final


def test_a_finished_run_is_made_longer_as_if_it_had_been_so_from_the_start(folder, parent):
    longer = go_on(fork_run(parent, ["training.num_epochs=4"]).config)
    whole = go_on(config_of(folder, "whole", num_epochs=4))
    assert longer.info.num_steps == whole.info.num_steps == 4 * PER_EPOCH
    assert longer.manifest.final == whole.manifest.final
    for one, other in zip(longer.metrics()[-5:], whole.metrics()[-5:], strict=True):
        assert {**one, "state_id": ""} == {**other, "state_id": ""}


def test_other_rows_begin_an_epoch_0_and_kills_leave_no_trace(parent):
    changes, told = ["data.source=others.jsonl", "training.num_epochs=2"], []
    fork = fork_run(parent, changes, at_step=7, run_id="others", tell=told.append)
    assert told == ["rows       they are not those of parent: their epoch 0 begins at step 7"]
    assert fork.info.counted_from == CountedFrom(step=7, epoch=0)
    assert fork.info.num_steps == 7 + 2 * 2
    fork = go_on(fork.config)
    trained = rows_by_epoch(fork)
    assert [sorted(rows) for rows in trained.values()] == 2 * [list(range(OTHER_ROWS - HELD_OUT))]
    killed = fork_run(parent, changes, at_step=7, run_id="killed")
    for step in (7, 9):
        with pytest.raises(Killed):
            go_on(killed.config, killed_after=step)
    killed = go_on(killed.config)
    assert killed.manifest.final == fork.manifest.final
    grandchild = go_on(fork_run(fork, at_step=10).config)
    assert grandchild.info.counted_from == fork.info.counted_from
    assert grandchild.manifest.final == fork.manifest.final


def test_rows_that_are_prepared_otherwise_are_other_rows(parent):
    fork = fork_run(parent, ["training.trl.max_length=10"], at_step=7)
    assert fork.info.counted_from == CountedFrom(step=7, epoch=0)


def test_rows_that_come_out_the_same_are_the_parents(parent):
    changes = ["data.eval_samples=0", "data.eval_source=others.jsonl", "data.max_samples=40"]
    fork = fork_run(parent, ["training.trl.max_length=300"], at_step=7)
    assert fork.info.counted_from == CountedFrom()
    assert fork.store.path("orders/000001.json").exists()
    fork = fork_run(parent, changes, at_step=7)
    assert fork.info.counted_from == CountedFrom(step=7), "those held out are trained on now"


def test_steps_of_another_size_begin_with_an_epoch(parent):
    changes = ["training.batch_size=4"]
    with pytest.raises(
        ConfigError,
        match=r"training\.batch_size cannot be changed here: parent at step 7 is in the middle of "
        r"epoch 1 \(steps 5 to 9\), whose .*--at-step 5",
    ):
        fork_run(parent, changes, at_step=7)
    fork = fork_run(parent, changes, at_step=5)
    assert fork.info.counted_from == CountedFrom(step=5, epoch=1)
    assert fork.info.num_steps == 5 + 2 * 9
    fork = go_on(fork.config)
    assert list(rows_by_epoch(fork)) == [1, 2]
    assert all(sorted(rows) == list(range(34)) for rows in rows_by_epoch(fork).values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ('algorithm={type="dpo"}', "from 'sft' to 'dpo' in a fork"),
        ("training.ranks=2", "training.ranks cannot be changed in a fork: it was 1"),
        ("training.max_steps=7", "the run is 7 steps long and the fork would begin at step 7"),
        ("training.num_epochs=1", "the run is 5 steps long and the fork would begin at step 7"),
    ],
)
def test_what_would_mean_nothing_is_refused(change, said, parent):
    with pytest.raises(ConfigError, match=said):
        fork_run(parent, [change], at_step=7)
