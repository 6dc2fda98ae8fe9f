"""A power cut between two file operations of a process: what it had not synced by then is lost.

file not synced               it is there, and empty
folder not synced since then  a new name in it is gone
"""

import json
import os
import shutil
import stat
import sys
import threading

CUT = 137
"""Exit code of a process that was cut off."""
WRITES = os.O_WRONLY | os.O_RDWR


class Watched:
    """Counts the operations of this process below a folder, and ends it before the one numbered
    `cut_at`; `note` then has what would outlast that. For a process that is forked for it."""

    def __init__(self, folder, cut_at=None, note=None):
        self.operations = 0
        self._below, self._cut_at, self._note = f"{folder}{os.sep}", cut_at, note
        self._lock = threading.RLock()
        self._synced = {os.lstat(path).st_ino for path in _everything(folder)}
        self._new_names = {}
        """Of each folder, by its inode, since its last sync."""
        self._fsync, os.fsync = os.fsync, self._synced_by
        sys.addaudithook(self._heard)

    def _heard(self, event, arguments):
        if event == "open" and arguments[2] & WRITES:
            self._changes(arguments[0], is_new=True)
        elif event in ("os.rename", "os.link"):
            self._changes(arguments[1], is_new=True)
        elif event in ("os.mkdir", "os.remove", "os.rmdir"):
            self._changes(arguments[0], is_new=event == "os.mkdir")

    def _changes(self, path, *, is_new):
        path = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
        if not path.startswith(self._below):
            return
        with self._lock:
            self._count()
            folder, name = os.path.split(path)
            if is_new and os.path.isdir(folder) and not os.path.lexists(path):
                self._new_names.setdefault(os.stat(folder).st_ino, []).append(name)

    def _synced_by(self, descriptor):
        with self._lock:
            self._count()
        found = os.fstat(descriptor)
        self._fsync(descriptor)
        with self._lock:
            self._synced.add(found.st_ino)
            if stat.S_ISDIR(found.st_mode):
                self._new_names.pop(found.st_ino, None)

    def _count(self):
        self.operations += 1
        if self.operations == self._cut_at:
            self._note.write_text(json.dumps([sorted(self._synced), self._new_names]))
            os._exit(CUT)


def lose_what_was_not_synced(folder, note):
    """Leave of a folder what the `note` of a process that was cut off says."""
    synced, new_names = json.loads(note.read_text())
    for place, _, _ in os.walk(folder, topdown=False):
        for name in new_names.get(str(os.stat(place).st_ino), []):
            path = os.path.join(place, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.unlink(path)
    for path in _everything(folder):
        found = os.lstat(path)
        if stat.S_ISREG(found.st_mode) and found.st_ino not in synced:
            os.truncate(path, 0)


def _everything(folder):
    for place, folders, files in os.walk(folder):
        yield from (os.path.join(place, name) for name in (".", *folders, *files))
