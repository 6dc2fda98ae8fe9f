"""What an error says about a limit of the machine."""

import os
import resource

import pytest

from mortal_steps.system.limits import ENOUGH_ADDRESS_SPACE, address_space_warning, remedy


def test_whoever_runs_out_of_open_files_is_told_what_to_raise(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        with pytest.raises(OSError) as caught:
            os.open(tmp_path, os.O_RDONLY)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert remedy(caught.value) == "; raise the limit of open files, `ulimit -n 4096`"


def test_other_errors_say_enough():
    assert remedy(FileNotFoundError(2, "No such file or directory")) == ""
    assert remedy(OSError("of no number")) == ""


def test_little_address_space_is_told_before_a_worker_waits_for_it():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    assert address_space_warning() is None
    resource.setrlimit(resource.RLIMIT_AS, (ENOUGH_ADDRESS_SPACE - 1, hard))
    try:
        told = address_space_warning()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert told and "4.0 GB of address space (`ulimit -v`)" in told
