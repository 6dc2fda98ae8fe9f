"""Become a container: a file system layer of its own, then the program.

Called with the path of a `Launch` as JSON (isolation.py). Runs with `python -I -S` and uses the
standard library alone.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from collections.abc import Iterator
from typing import Any

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET = 0x20000, 0x10000000, 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18
PR_SET_PDEATHSIG = 1
KERNEL_DIRECTORIES = ("proc", "sys", "dev", "run")
"""Bound as they are: no layer can lie over them."""
NO_LAYER = ("proc", "sysfs", "devtmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "bpf", "nsfs")
"""Kinds of file systems that hold nothing of a container's."""

libc = ctypes.CDLL(None, use_errno=True)


def check(code: int, what: str) -> None:
    if code != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    code = libc.mount(
        source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode()
    )
    check(code, f"mount {source} at {target}")


def enter_namespaces(no_network: bool) -> bool:
    """A mount namespace; for other users than root inside a user namespace where they are root."""
    uid, gid = os.getuid(), os.getgid()
    flags = CLONE_NEWNS | (CLONE_NEWNET if no_network else 0) | (CLONE_NEWUSER if uid else 0)
    check(libc.unshare(flags), "unshare")
    if uid:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"0 {uid} 1"),
            ("gid_map", f"0 {gid} 1"),
        ):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    mount("", "/", "", MS_REC | MS_PRIVATE)
    return uid == 0


class Layers:
    """Directories for what the container writes, on a file system that goes with it."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory)
        mount("tmpfs", directory, "tmpfs", 0)
        self.directory = directory
        self.count = 0

    def overlay(self, lower: str, target: str, options: str = "") -> None:
        """Show `lower` at `target`; what is written there does not reach `lower`."""
        upper, work = (f"{self.directory}/{kind}-{self.count}" for kind in ("upper", "work"))
        self.count += 1
        os.mkdir(upper)
        os.mkdir(work)
        data = f"{options}lowerdir={lower},upperdir={upper},workdir={work}"
        mount("overlay", target, "overlay", 0, data)


def other_mounts(directory: str) -> Iterator[str]:
    """Mount points of the file systems that a layer over `/` does not show."""
    with open("/proc/self/mounts") as file:
        fields = [line.split() for line in file]
    for _, point, kind, *_ in fields:
        top = point.split("/")[1]
        if (
            point != "/"
            and top not in KERNEL_DIRECTORIES
            and kind not in NO_LAYER
            and not point.startswith(directory)
            and "\\" not in point
        ):
            yield point


def lay_over_root(layers: Layers, root: str) -> None:
    """As root: one layer over `/`, one over each file system mounted in it."""
    layers.overlay("/", root)
    for name in KERNEL_DIRECTORIES:
        if os.path.isdir(f"/{name}"):
            mount(f"/{name}", f"{root}/{name}", "", MS_BIND | MS_REC)
    for point in other_mounts(layers.directory):
        if os.path.isdir(root + point):
            try:
                layers.overlay(point, root + point)
            except OSError:  # not every kind of file system can be a lower layer
                mount(point, root + point, "", MS_BIND | MS_REC)


def lay_over_directories(layers: Layers, root: str) -> None:
    """In a user namespace, where `/` cannot be a lower layer: one over each directory in it."""
    for name in os.listdir("/"):
        source, target = f"/{name}", f"{root}/{name}"
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
        elif os.path.isdir(source):
            os.mkdir(target)
            if name in KERNEL_DIRECTORIES:
                mount(source, target, "", MS_BIND | MS_REC)
            elif os.access(source, os.R_OK | os.X_OK):  # of /root an empty one will do
                try:
                    layers.overlay(source, target, "userxattr,")
                except OSError:
                    mount(source, target, "", MS_BIND | MS_REC)


def bind(source: str, target: str, read_only: bool) -> None:
    """Show `source` at `target`, which is made if it is not there."""
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not os.path.exists(target):
            with open(target, "a"):
                pass
    mount(source, target, "", MS_BIND)
    if read_only:
        mount("", target, "", MS_BIND | MS_REMOUNT | MS_RDONLY)


def make_root(spec: dict[str, Any], root: str) -> None:
    """What the container sees, at `root`."""
    is_root = enter_namespaces(spec["no_network"])
    layers = Layers(spec["directory"])
    os.mkdir(root)
    (lay_over_root if is_root else lay_over_directories)(layers, root)
    empty = f"{spec['directory']}/empty"
    os.mkdir(empty)
    for path in spec["hide"]:
        if os.path.isdir(root + path):
            bind(empty, root + path, True)
    for one in spec["binds"]:
        bind(one["source"], root + one["target"], one["read_only"])


def join_namespaces(pid: int) -> None:
    """Those of another process of the container."""
    for name in ("user", "mnt", "net"):
        with open(f"/proc/{pid}/ns/{name}") as file:
            if os.fstat(file.fileno()).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
                check(libc.setns(file.fileno(), 0), f"enter the {name} namespace of {pid}")


def main() -> None:
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # a container ends with the plane
    with open(sys.argv[1]) as file:
        spec = json.load(file)
    root = f"{spec['directory']}/root"
    if spec["join"]:
        join_namespaces(spec["join"])
    else:
        make_root(spec, root)
    os.chroot(root)
    os.makedirs(spec["workdir"], exist_ok=True)
    os.chdir(spec["workdir"])
    if spec["memory_mb"]:
        limit = spec["memory_mb"] << 20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    os.execvpe(spec["arguments"][0], spec["arguments"], spec["environment"])


main()
