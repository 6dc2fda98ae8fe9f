"""What a program may use."""

import math

import pytest

from mortal_steps.sandbox.base import Limits


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ({"timeout": 0}, "above 0"),
        ({"wall_timeout": math.inf}, "above 0"),
        ({"memory_mb": 512.5}, "memory_mb = 512.5: this limit is a whole number"),
        ({"output_kb": 1e3}, "whole number"),
    ],
)
def test_a_limit_that_the_kernel_does_not_take_is_refused(limit, says):
    with pytest.raises(ValueError, match=says):
        Limits(**limit)
