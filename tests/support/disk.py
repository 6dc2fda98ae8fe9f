"""A file system of its own for runs, which can be filled."""

from __future__ import annotations

import contextlib
import errno
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

CHUNK = 2**20
BLOCK = 4096


class Disk:
    """The file system at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def be_full(self, seconds: float) -> None:
        """Leave no free byte for so long."""
        until = time.monotonic() + seconds
        self.stay_full(lambda: time.monotonic() < until)

    def stay_full(self, goes_on: Callable[[], bool]) -> None:
        """Leave no free byte while this is true."""
        with self.full() as filler:
            while goes_on():
                time.sleep(0.05)
                with filler.open("ab", buffering=0) as file:
                    _fill(file, BLOCK)  # what others have freed meanwhile

    @contextlib.contextmanager
    def full(self) -> Iterator[Path]:
        """No free byte for the time of the block; yields the file that has taken them."""
        filler = self.folder / ".filler"
        try:
            with filler.open("wb", buffering=0) as file:
                for size in (CHUNK, BLOCK):
                    _fill(file, size)
            yield filler
        finally:
            filler.unlink()


def _fill(file: IO[bytes], size: int) -> None:
    try:
        while True:
            file.write(bytes(size))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise


@contextlib.contextmanager
def mounted(folder: Path, megabytes: int) -> Iterator[Disk]:
    """A tmpfs of this size at `folder`. Raises `PermissionError` where mounting is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise PermissionError(f"cannot mount a file system at {folder}: {done.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
