"""Runs that select what they sample: killed between rounds, with other workers, forked."""

import dataclasses
import json
from types import SimpleNamespace

import pytest

from mortal_steps.errors import ConfigError, StoreError
from mortal_steps.orchestration.batch_sources.selecting import Selecting
from mortal_steps.orchestration.checking.checks import check_column
from mortal_steps.orchestration.forking.fork import fork_run
from mortal_steps.orchestration.session import Session
from mortal_steps.policy.journal import find_entry
from mortal_steps.report.problems import VERDICTS, problems_of
from mortal_steps.runs.logs import SELECTIONS, USAGE
from mortal_steps.runs.run import find_run
from mortal_steps.runs.verify import check_run
from mortal_steps.selection.curriculum import REST
from mortal_steps.types import Problem
from tests.support import bare_flow

STEPS = 6


def config_of(folder, *, keep_last=2, **options):
    chosen = {f"selection.{name}": value for name, value in options.items()}
    return bare_flow.project_config(folder, **chosen, **{"checkpoints.keep_last": keep_last})


def die_in(patch, *, step, round):
    """End the process, as it were, when this round is planned and not sampled yet."""
    draw, died = Session.draw, []

    async def dying(self, at, number, *given):
        batch = await draw(self, at, number, *given)
        if (at, number) == (step, round) and not died:
            died.append(at)
            raise bare_flow.Killed
        return batch

    patch.setattr(Session, "draw", dying)


def records_of(run):
    """The selection of each step, as its journal has it."""
    found = [find_entry(run.store, step).request.batch.selected for step in range(STEPS)]
    log = [{"step": n + 1, **dataclasses.asdict(record)} for n, record in enumerate(found)]
    assert run.logs.read(SELECTIONS) == json.loads(json.dumps(log))
    return found


@pytest.mark.parametrize("staleness", [0, 1])
def test_killed_between_two_rounds_it_ends_with_the_same_bits(tmp_path, staleness):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        config = config_of(tmp_path / name, type="dynamic", max_rounds=2)
        rollout = config.rollout.model_copy(update={"staleness": staleness})
        config = config.model_copy(update={"rollout": rollout})
        with bare_flow.bare_in(tmp_path / name) as patch:
            if name == "killed":
                die_in(patch, step=3, round=1)
                with pytest.raises(bare_flow.Killed):
                    bare_flow.go_on(config)
            bare_flow.go_on(config)
    whole, killed = (find_run(tmp_path / name / "runs", "run") for name in ("whole", "killed"))
    assert max(record.num_rounds for record in records_of(whole)) == 2
    assert records_of(killed) == records_of(whole)
    found = problems_of(killed)
    rows = {row for record in records_of(killed) for row in record.rows}
    assert found.num_sampled == len(rows) and (found.first_step, found.last_step) == (1, STEPS)
    assert sum(map(found.count, VERDICTS)) == found.num_sampled
    assert killed.manifest.final.weights_sha256 == whole.manifest.final.weights_sha256
    assert killed.metrics() == whole.metrics()
    report = check_run(tmp_path / "killed/runs", "run")
    assert [file for file in report.files if file.damage] == []


def test_what_is_trained_on_is_what_was_kept(tmp_path):
    config = config_of(tmp_path, keep_last=9, type="screen", first=2)
    with bare_flow.bare_in(tmp_path):
        bare_flow.go_on(config)
    run = find_run(tmp_path / "runs", "run")
    size = config.training.num_generations
    for step, record in enumerate(records_of(run)):
        batch = find_entry(run.store, step).request.batch
        assert batch.cursor == record.position and len(batch.kept) == len(record.kept)
        assert all(len(parts) == 4 for parts in batch.kept), "begun, and gone on with"
        read = batch.read(run.store, step, run.plan.trainer)
        assert [len(group.rollouts) for group in read.groups] == [size] * len(record.kept)
        tokens = [c.completion.token_ids for group in read.groups for c in group.rollouts]
        assert run.metrics()[step]["num_kept_groups"] == len(record.kept)
        assert len({tuple(each) for each in tokens}) > 1
    with bare_flow.bare_in(tmp_path):
        fork = fork_run(run, ['selection={type="curriculum"}'], at_step=2, run_id="fork")
    assert fork.config.selection.rest == REST, "as in a new run: its parent has another selection"


def test_a_fork_goes_on_with_what_its_parent_knows(tmp_path):
    config = config_of(tmp_path, keep_last=9, type="curriculum", pool=2)
    with bare_flow.bare_in(tmp_path):
        parent = bare_flow.go_on(config)
        fork = fork_run(parent, at_step=2, run_id="fork")
        ended = bare_flow.go_on(fork.config)
        logs = [run.logs.read(SELECTIONS) for run in (ended, parent)]
        assert logs[0] == logs[1] and len(logs[0]) == STEPS
        plain = fork_run(parent, ['selection={type="all"}'], at_step=2)
        every = bare_flow.go_on(plain.config)
        again = fork_run(every, ['selection={type="curriculum"}'], at_step=4)
        selected = bare_flow.go_on(again.config).logs.read(SELECTIONS)
    assert ended.manifest.final.weights_sha256 == parent.manifest.final.weights_sha256
    assert [row["step"] for row in every.logs.read(SELECTIONS)] == [1, 2]
    assert [row["step"] for row in selected] == [5, 6], "what is known begins with the selection"


def test_a_fork_of_other_rewards_begins_anew_and_is_resumed_and_forked(tmp_path):
    """It has no records of its parent's steps, after a kill or the loss of the manifest either."""
    config = config_of(tmp_path, keep_last=9, type="curriculum", pool=2)
    with bare_flow.bare_in(tmp_path):
        parent = bare_flow.go_on(config)
        ends = []
        for name, killed_after in (("whole", None), ("killed", 4), ("damaged", 4)):
            fork = fork_run(parent, ["rewards.weights=[2.0]"], at_step=2, run_id=name)
            assert fork.logs.read(SELECTIONS) == []
            if killed_after is not None:
                with pytest.raises(bare_flow.Killed):
                    bare_flow.go_on(fork.config, killed_after=killed_after)
            if name == "damaged":
                fork.store.path("manifest.json").unlink()
            ends.append(bare_flow.go_on(fork.config))
        ends.append(bare_flow.go_on(fork_run(ends[0], at_step=4, run_id="grandchild").config))
    logs = [run.logs.read(SELECTIONS) for run in ends]
    assert all(log == logs[0] for log in logs)
    assert [row["step"] for row in logs[0]] == [3, 4, 5, 6]
    assert len({run.manifest.final.weights_sha256 for run in ends}) == 1
    for run in ends:
        driven = [row["driven_s"] for row in run.logs.read(USAGE)]
        assert driven == sorted(driven) and len(driven) == STEPS


def test_what_a_log_has_lost_before_a_fork_began_is_named(tmp_path):
    """What is known begins with the first line only where nothing was known then."""
    config = config_of(tmp_path, keep_last=9, type="curriculum", pool=2)
    with bare_flow.bare_in(tmp_path):
        fork = fork_run(bare_flow.go_on(config), at_step=4, run_id="fork")
        fork.logs.replace(SELECTIONS, fork.logs.read(SELECTIONS)[1:])
        source = Selecting(session=SimpleNamespace(run=fork, store=fork.store), workers=None)
        with pytest.raises(StoreError, match="lacks the line of step 1,"):
            source.begin(4, [])


def test_a_log_that_lacks_a_step_is_named(tmp_path):
    config = config_of(tmp_path, type="curriculum", pool=2)
    with bare_flow.bare_in(tmp_path):
        run = bare_flow.go_on(config)
        rows = run.logs.read(SELECTIONS)
        run.logs.replace(SELECTIONS, rows[:1] + rows[2:])
        session = SimpleNamespace(run=run, store=run.store)
        source = Selecting(session=session, workers=None)
        with pytest.raises(StoreError, match="lacks the line of step 2,"):
            source.begin(STEPS, [])


def test_a_column_that_is_not_there_is_named(tmp_path):
    config = config_of(tmp_path, type="curriculum", column="level")
    row = Problem(id="train-0", prompt="1 + 1", columns={"answer": "2"})
    with pytest.raises(ConfigError, match=r"selection.column = 'level': .* they have answer"):
        check_column(config.selection, row)
