"""mortal_steps.sandbox.syscalls: the filter refuses what it names and nothing else."""

import struct

import pytest

from mortal_steps.sandbox.syscalls import (
    ALLOW,
    AUDIT_ARCH,
    CLONE,
    CLONE3,
    KILL_PROCESS,
    PRLIMIT64,
    REFUSED,
    SOCKET,
    X32,
    filter_program,
)

ERRNO_OF = {"EPERM": 0x50001, "ENOSYS": 0x50026, "EAFNOSUPPORT": 0x50061}


def decide(machine: str, number: int, argument: int = 0, arch: int | None = None) -> int:
    """What the kernel would do: the instructions that the filter is made of, carried out."""
    data = {0: number, 4: AUDIT_ARCH[machine] if arch is None else arch, 16: argument}
    program = list(struct.iter_unpack("<HBBI", filter_program(machine)))
    held, at = 0, 0
    while True:
        code, if_true, if_false, value = program[at]
        if code == 0x06:
            return value
        at += 1
        if code == 0x20:
            held = data[value]
        else:
            holds = {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_what_is_named_is_refused_and_the_rest_is_not(machine: str) -> None:
    column = list(AUDIT_ARCH).index(machine)
    special = {each[column] for each in (CLONE, CLONE3, PRLIMIT64, SOCKET)}
    refused = {both[column] for both in REFUSED.values()}
    assert len(refused) == len(REFUSED) and not refused & special
    for number in set(range(500)) - special:
        expected = ERRNO_OF["EPERM"] if number in refused else ALLOW
        assert decide(machine, number) == expected, number


@pytest.mark.parametrize("machine", AUDIT_ARCH)
def test_arguments_decide_where_they_matter(machine: str) -> None:
    column = list(AUDIT_ARCH).index(machine)
    assert decide(machine, CLONE[column], 0x01200011) == ALLOW, "fork"
    assert decide(machine, CLONE[column], 0x3D0F00) == ALLOW, "a thread"
    assert decide(machine, CLONE[column], 0x10000011) == ERRNO_OF["EPERM"], "a user namespace"
    assert decide(machine, CLONE3[column]) == ERRNO_OF["ENOSYS"]
    assert decide(machine, PRLIMIT64[column], 0) == ALLOW
    assert decide(machine, PRLIMIT64[column], 1) == ERRNO_OF["EPERM"]
    families = {family: decide(machine, SOCKET[column], family) for family in range(46)}
    assert {family for family, what in families.items() if what == ALLOW} == {1, 2, 10}
    assert set(families.values()) == {ALLOW, ERRNO_OF["EAFNOSUPPORT"]}


def test_calls_of_another_interface_are_refused() -> None:
    assert decide("x86_64", 57, arch=0x40000003) == KILL_PROCESS
    assert decide("x86_64", X32 + 57) == ERRNO_OF["ENOSYS"]


def test_a_machine_that_it_is_not_written_for_has_no_filter() -> None:
    assert filter_program("riscv64") == b""
