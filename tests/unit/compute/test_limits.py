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


@pytest.mark.parametrize(
    ("limit", "told"),
    [(resource.RLIM_INFINITY, None), (ENOUGH_ADDRESS_SPACE, None), (2**30, "may take 1.0 GB of")],
)
def test_little_address_space_is_told_before_a_worker_waits_for_it(monkeypatch, limit, told):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, resource.RLIM_INFINITY))
    said = address_space_warning()
    assert said is None if told is None else told in said
