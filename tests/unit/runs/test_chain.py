"""The chain of state ids: what `mortal verify` says where it does not hold."""

import dataclasses

import pytest

from mortal_steps.policy import journal
from mortal_steps.policy.on_disk.checkpoints import CheckpointState
from mortal_steps.runs.checked import PARTS, broken_link, other_state
from mortal_steps.types import StageTiming, StepResult

OWN = "f" * 64


def steps(*digests):
    """Records of a run whose steps left weights of these digests."""
    state_id = history_id = journal.first_state_id(OWN)
    for step, trained in enumerate(digests):
        batch = f"batch {step}"
        state_id = journal.next_state_id(state_id, batch, OWN, trained)
        history_id = journal.next_state_id(history_id, batch, OWN)
        yield StepResult(
            step=step,
            metrics={},
            optimizer_steps=step + 1,
            batch_sha256=batch,
            state_id=state_id,
            history_id=history_id,
            weights_digest=trained,
            random_sha256="",
            weights=None,
            timing=StageTiming(stage="train_step", step=step),
        )


def ids(result):
    return result.state_id, result.history_id


def test_the_step_where_the_weights_part_is_named():
    here, elsewhere = list(steps("a", "b", "c")), list(steps("a", "other", "c"))
    assert [broken_link(ids(here[n]), None, here[n + 1], OWN) for n in (0, 1)] == [None, None]
    assert broken_link(ids(here[1]), None, elsewhere[2], OWN) == PARTS


def test_another_batch_is_no_question_of_hardware():
    first, second = steps("a", "b")
    other = dataclasses.replace(second, batch_sha256="another")
    assert broken_link(ids(first), None, other, OWN) == "does not follow from the step before it"


def test_a_step_after_one_whose_result_is_lost_follows_by_its_batches():
    first, second, third = steps("a", "b", "c")
    assert broken_link((None, first.history_id), None, second, OWN) is None
    assert broken_link((None, first.history_id), None, third, OWN) is not None


@pytest.mark.parametrize(
    ("changed", "damage"),
    [
        ({}, None),
        ({"state_id": "0"}, "is of another state than step 0 led to"),
        ({"digests": {"weights": "b"}}, "holds other weights than step 0 left, whose state it"),
    ],
)
def test_a_checkpoint_of_other_weights_than_its_state_id_names_is_found(changed, damage):
    (result,) = steps("a")
    saved = CheckpointState(
        step=1,
        state_id=result.state_id,
        history_id=result.history_id,
        digests={"weights": "a"},
        autocast=False,
        optimizer_steps=1,
        fingerprint=OWN,
    )
    found = other_state(dataclasses.replace(saved, **changed), result)
    assert found is None if damage is None else str(found).startswith(damage)
