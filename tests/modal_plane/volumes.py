"""Volumes as containers see them: a copy each, published by commit, brought up to date by reload.

The committed state of a volume is a directory. A container that mounts the volume gets a copy of
it; a commit brings what changed in the copy into the committed state (the last writer of a file
wins), a reload brings what others committed into the copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from grpclib import GRPCError, Status
from modal_proto import api_pb2 as pb

from .isolation import Bind
from .types import MountedVolume, World

DIRECTORY = (-1,)
"""The stamp of a directory, which has no content of its own."""
BESIDE = ".plane-tmp"


class Volumes:
    """The committed state of all volumes, and the copies of those who mount them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.named: dict[tuple[str, str], str] = {}
        self.versions: dict[str, pb.VolumeFsVersion.ValueType] = {}
        self.full: set[str] = set()
        """Volumes that take no more data, which a test asked for."""

    def committed(self, volume_id: str) -> Path:
        """The directory of the committed state."""
        if volume_id not in self.versions:
            raise GRPCError(Status.NOT_FOUND, f"Volume {volume_id!r} not found")
        return self.world.state / "volumes" / volume_id

    def check_space(self, volume_id: str) -> None:
        """Refuse new data for a full volume."""
        if volume_id in self.full:
            name = next((n for (_, n), v in self.named.items() if v == volume_id), volume_id)
            raise GRPCError(Status.RESOURCE_EXHAUSTED, f"Volume {name!r} is full")

    def mount(
        self, mounts: Iterable[pb.VolumeMount], directory: Path, mounted: dict[str, MountedVolume]
    ) -> list[Bind]:
        """Copies of the volumes below `directory`, noted in `mounted`.

        Without namespaces there are no copies: everyone works on the committed state.
        """
        binds = []
        for one in mounts:
            path = self.committed(one.volume_id)
            if self.world.options.isolation == "namespaces" and one.volume_id not in mounted:
                path = directory / one.volume_id
                shutil.copytree(self.committed(one.volume_id), path, symlinks=True)
            if one.volume_id not in mounted:
                mounted[one.volume_id] = MountedVolume(path=path, seen=stamps(path))
            source = mounted[one.volume_id].path / one.sub_path.strip("/")
            source.mkdir(parents=True, exist_ok=True)
            binds.append(
                Bind(
                    source=str(source),
                    target=one.mount_path,
                    read_only=one.read_only,
                    is_volume=True,
                )
            )
        return binds

    def commit(self, volume_id: str, mounted: MountedVolume) -> int:
        """Publish what changed in the copy since it was last in step; returns how many files."""
        head = self.committed(volume_id)
        if mounted.path == head:
            return 0
        now = stamps(mounted.path)
        changed = [path for path, stamp in now.items() if mounted.seen.get(path) != stamp]
        if changed:
            self.check_space(volume_id)
        for path in changed:
            _copy(mounted.path / path, head / path)
        gone = [path for path in mounted.seen if path not in now]
        for path in sorted(gone, reverse=True):
            _remove(head / path)
        mounted.seen = now
        return len(changed) + len(gone)

    async def commit_in_background(self) -> None:
        """Commit what containers have written so far, finished or not, again and again."""
        while self.world.options.background_commit_s:
            await asyncio.sleep(self.world.options.background_commit_s)
            for container in self.world.open_containers():
                for volume_id, mounted in container.volumes.items():
                    with contextlib.suppress(GRPCError):  # full
                        self.commit(volume_id, mounted)

    def reload(self, volume_id: str, mounted: MountedVolume) -> None:
        """Bring the copy to the committed state; what was not committed in it is lost."""
        head = self.committed(volume_id)
        if mounted.path == head:
            return
        wanted, there = stamps(head), stamps(mounted.path)
        for path in sorted((p for p in there if p not in wanted), reverse=True):
            _remove(mounted.path / path)
        for path, stamp in wanted.items():
            if path not in there or _content(there[path]) != _content(stamp):
                _copy(head / path, mounted.path / path)
        mounted.seen = stamps(mounted.path)


def stamps(root: Path) -> dict[str, tuple[int, ...]]:
    """What tells whether a file was changed, for each path below `root`, parents first."""
    found: dict[str, tuple[int, ...]] = {}
    for folder, directories, files in os.walk(root):
        for name in directories:
            found[os.path.relpath(os.path.join(folder, name), root)] = DIRECTORY
        for name in files:
            path = os.path.join(folder, name)
            with contextlib.suppress(FileNotFoundError):  # removed while it was looked at
                stat = os.lstat(path)
                found[os.path.relpath(path, root)] = (stat.st_size, stat.st_mtime_ns, stat.st_ino)
    return found


def has_open_files(pid: int, root: Path) -> bool:
    """Whether a process of the container has a file below `root` open, or works in there;
    `pid` is the container's first process. One that is mapped into memory does not count."""
    inodes = {stamp[-1] for stamp in stamps(root).values() if stamp != DIRECTORY}
    folders = {os.lstat(folder).st_ino for folder, _, _ in os.walk(root)}
    device = os.stat(root).st_dev
    for process in _processes(pid):
        try:
            links = list((process / "fd").iterdir())
        except OSError:  # ended meanwhile
            continue
        held = [(link, inodes) for link in links] + [(process / "cwd", folders)]
        for link, among in held:
            try:
                stat = os.stat(link)
            except OSError:  # closed meanwhile, or a pipe
                continue
            if stat.st_dev == device and stat.st_ino in among:
                return True
    return False


def _processes(pid: int) -> Iterator[Path]:
    """Every process of the container in /proc: those in its mount namespace or, where it has none
    of its own, in its process group."""
    namespace = _namespace(pid)
    is_apart = namespace != _namespace("self")
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            apart, group = _namespace(entry.name), os.getpgid(int(entry.name))
        except OSError:  # ended meanwhile
            continue
        if apart == namespace if is_apart else group == pid:
            yield entry


def _namespace(pid: int | str) -> str:
    return os.readlink(f"/proc/{pid}/ns/mnt")


def _content(stamp: tuple[int, ...]) -> tuple[int, ...]:
    return stamp[:2]


def _copy(source: Path, target: Path) -> None:
    if source.is_dir() and not source.is_symlink():
        target.mkdir(parents=True, exist_ok=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(target.name + BESIDE)
    try:
        shutil.copy2(source, beside, follow_symlinks=False)
    except FileNotFoundError:  # removed while it was looked at
        return
    beside.replace(target)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        if not any(path.iterdir()):
            path.rmdir()
    else:
        path.unlink(missing_ok=True)
