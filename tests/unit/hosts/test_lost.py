"""A process with users' code that was lost, in words."""

from mortal_steps.hosts.base import HostLostError
from mortal_steps.hosts.forked import WITH_HOST


def test_one_that_was_killed_is_told_of_with_a_remedy():
    told = str(HostLostError("ended", f"{WITH_HOST}SIGKILL"))
    assert told.endswith("its host: SIGKILL; memory may have run out: make room, and begin again")
    assert str(HostLostError("ended", "exit code 3")).endswith("lost: exit code 3")
