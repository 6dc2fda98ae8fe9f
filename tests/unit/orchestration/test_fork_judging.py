"""Whether what a fork's parents scored before it began says anything of the fork."""

from dataclasses import replace

import pytest

from mortal_steps.orchestration.forking.fork import is_judged_as_before
from mortal_steps.plan.loader import override_config, parse_config
from mortal_steps.runs.identity import write_identity
from mortal_steps.runs.run import find_run
from mortal_steps.store import RunStore
from mortal_steps.types.identity import Parent

BEGUN = {"run_id": "begun", "data": {"source": "x"}, "rewards": {"functions": ["m:f"]}}


def fork_of(parent, run_id, *changes):
    """Return a run directory that says of itself to go on from the parent's step 2."""
    config = override_config(parent.config, [f"run_id={run_id}", *changes])
    store, info = RunStore(parent.store.root.parent / run_id), parent.info
    origin = Parent(
        run_id=info.run_id,
        uid=info.uid,
        step=2,
        state_id="",
        fingerprint=info.fingerprint,
        history_id="",
    )
    write_identity(store, config, [], [], origin)
    return find_run(store.root.parent, run_id)


@pytest.fixture
def parent(tmp_path):
    write_identity(RunStore(tmp_path / "begun"), parse_config(BEGUN), [], [])
    return find_run(tmp_path, "begun")


@pytest.mark.parametrize(
    ("change", "alike"),
    [
        ("training.learning_rate=0.01", True),
        ("rewards.functions=m:other", False),
        ("evaluation.temperature=0.5", False),
        ("data.eval_samples=2", False),
    ],
)
def test_scores_of_before_count_for_a_fork_that_is_judged_alike(parent, change, alike):
    assert is_judged_as_before(parent)
    fork = fork_of(parent, "fork", change)
    assert is_judged_as_before(fork) is alike
    assert is_judged_as_before(fork_of(fork, "grandchild")) is alike


def test_they_do_not_count_where_the_parent_is_gone_or_another_run_has_its_name(parent):
    fork = fork_of(parent, "fork")
    other = replace(fork.info, parent=replace(fork.info.parent, uid="0" * 32))
    fork.info = other
    assert not is_judged_as_before(fork)
    fork.info = replace(other, parent=replace(fork.info.parent, run_id="gone"))
    assert not is_judged_as_before(fork)
