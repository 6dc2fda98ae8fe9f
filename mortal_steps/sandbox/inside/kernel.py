"""System calls that the standard library does not offer."""

from __future__ import annotations

import ctypes
import os

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND = 1, 2, 4, 8, 32, 4096
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38
SECCOMP_MODE_FILTER = 2
CAPABILITY_VERSION_3 = 0x20080522
INODES_PER_MB = 256
"""Limit on the number of files in a tmpfs: each takes memory that the size does not count."""

_libc = ctypes.CDLL(None, use_errno=True)


def prctl(option: int, *values: int) -> None:
    """Call prctl(2). Raises `OSError`."""
    arguments = [ctypes.c_ulong(value) for value in (*values, 0, 0, 0, 0)[:4]]
    _checked("prctl", _libc.prctl(option, *arguments))


def mount_tmp(folder: str, size_mb: int) -> None:
    """Mount an empty tmpfs that everybody may write to. Raises `OSError`."""
    options = f"size={size_mb}m,nr_inodes={size_mb * INODES_PER_MB},mode=1777".encode()
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV)
    _checked("mount", _libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, options))


def make_proc_read_only() -> None:
    """Remount /proc read-only. Raises `OSError`."""
    flags = ctypes.c_ulong(MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    _checked("mount", _libc.mount(None, b"/proc", None, flags, None))


def unmount(folder: str) -> None:
    """Unmount a folder, even if it is in use. Raises `OSError`."""
    _checked("umount", _libc.umount2(folder.encode(), MNT_DETACH))


def drop_capabilities() -> None:
    """Give up all capabilities of this thread. Raises `OSError`."""
    header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked("capset", _libc.capset(header, nothing))


class _Filter(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def install_filter(program: bytes) -> None:
    """Have the kernel refuse system calls for good, by `program`, an array of `struct sock_filter`.
    Raises `OSError`."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    filled = _Filter(len(program) // 8, program)
    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(filled))


def _checked(call: str, result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{call}: {os.strerror(number)}")
