"""mortal_steps.policy.ranks.machines, and where ranks of several machines meet."""

import os
import socket
from types import SimpleNamespace

import psutil
import pytest

from mortal_steps.errors import ComputeError
from mortal_steps.policy.ranks import world
from mortal_steps.policy.ranks.machines import Followers, Machines, Ranks, machines
from tests.support.refused import refused

TWO = Machines(addresses=("127.78.0.1", "127.78.0.2"), number=1, secret="known")


def test_a_process_without_the_variable_is_on_the_only_machine(monkeypatch):
    assert machines() == Machines() and not machines().are_several
    for name, value in TWO.environment().items():
        monkeypatch.setenv(name, value)
    assert machines() == TWO and machines().are_several


@pytest.mark.parametrize(("rank", "is_first"), [(0, True), (1, False), (2, True), (3, False)])
def test_each_machine_has_a_first_rank(monkeypatch, rank, is_first):
    monkeypatch.setenv(*next(iter(TWO.environment().items())))
    monkeypatch.setattr(world, "_joined", (rank, 4))
    assert world.is_first_here() == is_first


def test_no_ranks_are_started_before_the_first_machine_awaits_them():
    ranks = Ranks(count=4, timeout_s=5.0, sharding="none")
    followers = Followers(TWO, ranks, os.environ)
    followers.keep()
    assert followers._children == []


def test_gloo_talks_by_the_interface_that_has_the_machines_address(monkeypatch):
    assert world._interface("127.78.0.2") == world._interface("::1") == "lo"
    local = SimpleNamespace(family=socket.AF_INET, address="127.0.0.1")
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: {"lo0": [local]})  # as macOS has it
    assert world._interface("127.0.0.1") == "lo0"
    with refused(ComputeError, "203.0.113.7"):
        world._interface("203.0.113.7")
