"""A step's digests take one pass over the weights, and are those of passes of their own."""

import pytest
import torch

from mortal_steps.policy.algorithms.stepping import digests, state
from mortal_steps.policy.model_files.writing import published_tensors
from mortal_steps.policy.ranks import parts
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
from tests.support.policy.rollouts import make_batch, make_config
from tests.support.policy.runs import ADAPTER, LORA
from tests.support.policy.stepped import make_stepper


@pytest.fixture
def added_up(monkeypatch):
    """The tensors that were added up since the list was cleared."""
    tensors, add_up = [], parts.sums_of

    def noted(tensor, first_row=0):
        tensors.append(tensor)
        return add_up(tensor, first_row)

    monkeypatch.setattr(parts, "sums_of", noted)
    return tensors


def alone(stepper):
    """Return the digests of a step, each by a pass of its own."""
    model = stepper.trainer.model
    return (
        digests.weights_digest(model),
        tensor_digests(published_tensors(model).items()),
        state.state_digests(stepper.trainer)["weights"],
    )


def test_weights_are_added_up_once_for_all_digests_of_a_step(model_path, tmp_path, added_up):
    stepper = make_stepper(model_path, tmp_path, num_steps=1)
    model = stepper.trainer.model
    assert model.lm_head.weight is model.model.embed_tokens.weight, "tied"
    added_up.clear()
    found = (
        stepper.weights_digest(),
        stepper.published_digests(),
        stepper.snapshot().known_digests["weights"],
    )
    assert len(added_up) == len(list(model.parameters()))
    assert found == alone(stepper)


@pytest.mark.parametrize("training", [{}, LORA, ADAPTER], ids=["full", "merged", "adapter"])
def test_the_sums_of_a_step_are_not_those_of_the_step_before(model_path, tmp_path, training):
    stepper = make_stepper(model_path, tmp_path, num_steps=1, **training)
    first = stepper.weights_digest(), stepper.published_digests()
    config = make_config(learning_rate=1e-2, **training)
    stepper.train_step(make_batch(config, 1), seed=1)
    published = stepper.published_digests()  # asked for before those of the step are known
    assert published != first[1]
    assert (stepper.weights_digest(), stepper.published_digests()) == (
        digests.weights_digest(stepper.trainer.model),
        published,
    )


def test_a_tensor_that_comes_to_lie_where_another_lay_is_added_up(added_up):
    sums = digests.WeightSums()
    sums.note([torch.arange(6.0)])
    for value in range(20):  # memory that one gave back is the next one's
        tensor = torch.full((6,), float(value))
        assert sums.find([tensor]) == parts.sums_of_parts([tensor])
        del tensor
    sums.forget()
    tensor = torch.arange(6.0)
    sums.note([tensor])
    added_up.clear()
    assert sums.find([tensor, tensor.reshape(2, 3)])[0] == sums.note([tensor])[0]
    assert len(added_up) == 2, "the reshaped one, and the one noted again"
