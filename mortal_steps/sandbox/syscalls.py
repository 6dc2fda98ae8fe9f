"""A seccomp filter with which the kernel refuses system calls of programs.

A box hides files and the network. This filter covers what a box does not hide: sockets to other
machines (vsock), memory that no limit counts (System V, memfd), the priority and limits of the
program's own server, and parts of the kernel that no such program needs.
"""

import errno
import platform
import struct
from collections.abc import Sequence

AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

REFUSED: dict[str, tuple[int, int]] = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "semget": (64, 190),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "setpriority": (141, 140),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vhangup": (153, 58),
}
"""Each refused system call, with its number on x86_64 and on aarch64."""

CLONE = (56, 220)
CLONE3 = (435, 435)
"""Refused with ENOSYS, upon which the C library calls `clone` instead: the flags of `clone3` lie in
memory, which a filter cannot read."""
PRLIMIT64 = (302, 261)
SOCKET = (41, 198)

NEW_NAMESPACES = 0x7E020000
"""The flags of `clone` that make namespaces."""
FAMILIES = (1, 2, 10)
"""The kinds of socket that are allowed: unix, IPv4, IPv6. The network of a box is empty."""

X32 = 0x40000000
"""On x86_64, numbers from this one on belong to another interface (x32)."""

LOAD, JUMP_EQUAL, JUMP_AT_LEAST, JUMP_ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
NUMBER_AT, ARCH_AT, FIRST_ARGUMENT_AT = 0, 4, 16
"""Offsets in `struct seccomp_data`. That of an argument is the offset of its lower half on a
little-endian machine."""

_Instruction = tuple[int, int, int, int]


def filter_program(machine: str | None = None) -> bytes:
    """Return the filter, an array of `struct sock_filter`; empty if there is none."""
    machine = machine or platform.machine()
    if machine not in AUDIT_ARCH:
        return b""
    column = list(AUDIT_ARCH).index(machine)
    instructions = [
        (LOAD, 0, 0, ARCH_AT),
        (JUMP_EQUAL, 1, 0, AUDIT_ARCH[machine]),
        (RETURN, 0, 0, KILL_PROCESS),
        (LOAD, 0, 0, NUMBER_AT),
        *([(JUMP_AT_LEAST, 0, 1, X32), _refuse(errno.ENOSYS)] if machine == "x86_64" else []),
        *_on(CLONE3[column], [_refuse(errno.ENOSYS)]),
        *_on(CLONE[column], [(JUMP_ANY_BIT, 0, 1, NEW_NAMESPACES), _refuse(errno.EPERM)]),
        *_on(PRLIMIT64[column], [(JUMP_EQUAL, 1, 0, 0), _refuse(errno.EPERM)]),
        *_on(SOCKET[column], _only(FAMILIES, errno.EAFNOSUPPORT)),
    ]
    for numbers in REFUSED.values():
        instructions += [(JUMP_EQUAL, 0, 1, numbers[column]), _refuse(errno.EPERM)]
    instructions.append((RETURN, 0, 0, ALLOW))
    return b"".join(struct.pack("<HBBI", *each) for each in instructions)


def _refuse(error: int) -> _Instruction:
    return (RETURN, 0, 0, ERRNO | error)


def _on(number: int, then: Sequence[_Instruction]) -> list[_Instruction]:
    """Instructions for one system call: they check its first argument, then refuse or allow it."""
    allowed = (RETURN, 0, 0, ALLOW)
    body = [(LOAD, 0, 0, FIRST_ARGUMENT_AT), *then, allowed]
    return [(JUMP_EQUAL, 0, len(body), number), *body]


def _only(values: Sequence[int], error: int) -> list[_Instruction]:
    """Instructions that refuse an argument unless it is one of the values."""
    last = len(values)
    jumps = [(JUMP_EQUAL, last - at, 0, value) for at, value in enumerate(values)]
    return [*jumps, _refuse(error)]
