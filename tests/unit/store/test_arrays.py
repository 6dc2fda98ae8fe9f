"""Arrays made without pandas are those that pyarrow makes."""

import pyarrow
import pytest

from mortal_steps.store.arrays import array_of


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["a", None, "", "ü" * 300], pyarrow.string()),
        ([], pyarrow.string()),
        ([True, False, None] * 7, pyarrow.bool_()),
        ([True] * 8, pyarrow.bool_()),
        ([1, None, -(2**63), 2**63 - 1], pyarrow.int64()),
        ([1, 2, -(2**31)], pyarrow.int32()),
        ([0.1, None, float("inf"), 3], pyarrow.float64()),
        ([None], pyarrow.float64()),
        ([], pyarrow.float64()),
    ],
)
def test_an_array_is_what_pyarrow_makes(values, kind):
    made, wanted = array_of(values, kind), pyarrow.array(values, kind)
    made.validate(full=True)
    assert made.equals(wanted) and made.type == kind and made.null_count == wanted.null_count
    assert made.to_pylist() == wanted.to_pylist()


@pytest.mark.parametrize(
    ("value", "kind", "error"),
    [
        (2**63, pyarrow.int64(), OverflowError),
        ("\ud800", pyarrow.string(), UnicodeEncodeError),
    ],
)
def test_what_no_array_holds_is_refused_as_pyarrow_does(value, kind, error):
    for make in (array_of, pyarrow.array):
        with pytest.raises(error):
            make([value], kind)
