"""What a run says when it starts its workers."""

import pytest

from mortal_flows.training import parameters_in_words
from mortal_steps.types import ActorReady, TrainingPlace


@pytest.mark.parametrize(
    ("trained", "told"),
    [
        (4_884_480, "4,884,480 of 139,399,488 parameters"),
        (139_399_488, "139,399,488 parameters"),
        (None, "139,399,488 parameters"),
    ],
)
def test_a_start_says_how_many_parameters_are_trained(trained, told):
    place = TrainingPlace(device="cpu", precision="float32", threads=1, ranks=1)
    ready = ActorReady(
        step=0,
        state_id="",
        weights=(),
        num_parameters=139_399_488,
        num_trained=trained,
        place=place,
    )
    assert parameters_in_words(ready) == told
