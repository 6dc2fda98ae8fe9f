"""An error of a worker's becomes one that its caller can raise."""

import errno
import re
import traceback
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from mortal_steps.config.field_metadata import shapes_state
from mortal_steps.errors import ConfigError, DataError, DiskError, ModelError, WorkerError
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.system.faults import NO_MEMORY, as_mortal_error


def test_a_full_gpu_is_told_with_what_helps() -> None:
    told = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.68 GiB"
    error = as_mortal_error(torch.OutOfMemoryError(told))
    assert isinstance(error, WorkerError)
    assert str(error).startswith(f"OutOfMemoryError: {told}\n{NO_MEMORY}\n")


def is_in(identity: Mapping[str, Any], key: str) -> bool:
    value: Any = identity
    for part in key.split("."):
        if value == {}:
            return True  # options for a library
        if part not in value:
            return False
        value = value[part]
    return True


def test_what_helps_without_a_fork_is_named_first() -> None:
    keys = re.findall(r"[a-z]+(?:\.[a-z_]+)+", NO_MEMORY)
    free, forked = keys[:3], keys[3:]
    assert len(forked) == 3
    identity = RunConfig().identity()
    assert not any(is_in(identity, key) for key in free)
    assert all(is_in(identity, key) for key in forked)
    assert not any(shapes_state(RunConfig, key) for key in forked)


def raised_from(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (OSError(errno.ENOSPC, "No space left", "/tmp/x"), "No space left: '/tmp/x': a disk is"),
        (RuntimeError("inline_container.cc:626: unexpected pos"), "inline_container.cc:626"),
        (
            raised_from(ModelError("cannot load the model"), OSError(errno.EIO, "I/O error", "x")),
            "cannot load the model ([Errno 5] I/O error: 'x'): a disk is full or fails",
        ),
        (
            raised_from(
                DataError("no rows"), raised_from(ValueError(), OSError(errno.EDQUOT, "q"))
            ),
            "no rows ([Errno 122] q): a disk is full or fails",
        ),
    ],
)
def test_what_the_disk_has_brought_about_says_so_whatever_a_library_made_of_it(
    error: Exception, told: str
) -> None:
    """A run of a deployment is Crashed then, and is started again."""
    found = as_mortal_error(error)
    assert type(found) is DiskError
    assert told in str(found) and "free space" in str(found)
    assert str(found).endswith("".join(traceback.format_exception(error)))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EIO, "Input/output error"),  # of a terminal
        OSError(errno.ENXIO, "No such device or address", "/tmp/fifo"),
        OSError(errno.ENODEV, "No such device", "/dev/video0"),
        ValueError("the answer was (os error 5)"),
    ],
)
def test_what_may_come_from_elsewhere_is_not_the_disks(error: Exception) -> None:
    assert type(as_mortal_error(error)) is WorkerError


def test_an_error_that_is_its_own_cause_is_told() -> None:
    error = ValueError("a value")
    assert type(as_mortal_error(raised_from(error, error))) is WorkerError


def test_what_names_the_disk_or_has_another_cause_stays() -> None:
    full = OSError(errno.ENOSPC, "No space left")
    own = raised_from(DiskError("cannot write a file"), full)
    other = raised_from(ModelError("no such folder"), FileNotFoundError(errno.ENOENT, "x"))
    assert as_mortal_error(own) is own and as_mortal_error(other) is other


def test_other_errors_are_told_as_they_are() -> None:
    own = ConfigError("a key")
    assert as_mortal_error(own) is own
    assert (
        str(as_mortal_error(ValueError("a value"))) == "ValueError: a value\nValueError: a value\n"
    )
