"""What the bars on the page of a run are called."""

from mortal_tasks.segment_message import segment_name


def test_a_segment_is_named_by_its_steps():
    assert segment_name(0, 9) == "steps 0-9"
    assert segment_name(5, 6) == "steps 5-6"


def test_a_segment_of_one_step_is_named_by_that():
    assert segment_name(6, 6) == "step 6"
