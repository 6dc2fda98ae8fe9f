"""The run directory: the truth about a run.

    runs/<run_id>/
      config.toml          the resolved configuration
      run.json             identity: id, fingerprint, working directory, when it began, its parent
      reward_sources.json  which files the reward functions are made of, and since when
      inputs.json          of a stage of a recipe: what it began with, from which other stages
      base_model.json      the model built or warm-started for this run, if any
      manifest.json        where the run stands: status, step, logs, checkpoints, final model
      lock lease.json      who drives it
      data/                the problems, as read at the start (train.arrow, eval.json)
      steps/000012/        batch.json, generations-<shard>.parquet, rewards-<shard>.parquet,
                           journal.json, result.json
      evaluations/000012/  generations and rewards of the held-out problems
      weights/v12/         published weights, immutable
      checkpoints/step-12/ whole states of the actor
      final/               the trained model, a plain `from_pretrained` folder
      metrics.jsonl timings.jsonl evaluations.jsonl quarantine.jsonl usage.jsonl
      notices.jsonl        what the run has reported, to whoever is responsible for it
      reward_curve.png report.md report.html
      logs/                what each worker printed, and the flow
      judge/               answers of judges, and what they cost
      costs.jsonl calls/ settings/   of a run on Modal: what it cost, its calls, its workers

Everything is written under another name, synced to disk, then renamed, so a partial file is never
taken for a whole one. A *record* (records.py) is one value of a known type with its digest and its
format: JSON (json_record.py), or, where its name ends in `.parquet`, columns (shard_columns.py,
seal.py). A *folder* carries a `manifest.json` with the digest of each of its files (digests.py).
Reading verifies both; what a process has hashed and nobody has changed since it does not hash again
(folders.py).
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mortal_steps.errors import CorruptFileError
from mortal_steps.store import shared_memory
from mortal_steps.store.digests import digest_of_file, has_digest
from mortal_steps.store.files import (
    delete_folder,
    failed_write,
    hidden_beside,
    is_write_error,
    sync_to_disk,
    writing,
)
from mortal_steps.store.folders import (
    FOLDER_MANIFEST,
    VerifiedFiles,
    files_below,
    listed_files,
    manifest_of,
    raise_damage,
    replace_folder,
)
from mortal_steps.store.records import RecordStore
from mortal_steps.store.syncing import BackgroundSync

SHARED_BYTES = 1 << 20
"""Smaller files are not worth a link."""


class RunStore(RecordStore):
    """Atomic, verified reads and writes below one run directory: records, and folders of files that
    exist together or not at all."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._verified = VerifiedFiles()

    @contextlib.contextmanager
    def committing_folder(
        self,
        relative: str,
        *,
        hashed: Mapping[str, str] | None = None,
        shared_with: Sequence[str] = (),
        sync: BackgroundSync | None = None,
    ) -> Iterator[Path]:
        """Yield an empty folder to fill; on success it appears as `relative`, whole.

        `hashed` has the digests, by name, of files that the block hashes while it writes them; it
        may fill it as it goes. With `sync` the files reach the disk afterwards, beside other work.
        A large file that one of the committed folders `shared_with` has, too, becomes a link to it.

        A folder of that name is replaced. On an error nothing is left behind; what the disk
        refuses is a `StoreError`, whichever library ran into it.
        """
        target = self.path(relative)
        partial = hidden_beside(target, "partial")
        try:
            partial.mkdir(parents=True)
            yield partial
            known = hashed or {}
            names = files_below(partial)
            digests = {name: known.get(name) or digest_of_file(partial / name) for name in names}
            for name, digest in digests.items():
                self._share(partial / name, digest, shared_with)
            (partial / FOLDER_MANIFEST).write_bytes(manifest_of(digests))
            written = [partial / name for name in (*digests, FOLDER_MANIFEST)]
            written += sorted({path.parent for path in written})
            if sync is None:
                for path in written:
                    sync_to_disk(path)
                replace_folder(partial, target)
                sync_to_disk(target.parent)
            else:
                with sync.starting([*written, target.parent]):
                    replace_folder(partial, target)
        except BaseException as error:
            shutil.rmtree(partial, ignore_errors=True)
            if is_write_error(error, partial, target):
                raise failed_write(target, error) from error
            raise
        self._verified.forget(target)
        for name, digest in digests.items():
            self._verified.note(target / name, digest, self._verified.look(target / name))

    def _share(self, path: Path, digest: str, folders: Sequence[str]) -> None:
        """Replace a file by a link to the same one in a committed folder, so that the disk has it
        once. It stays where no folder has it undamaged, or the file system has no links."""
        if not folders or path.stat().st_size < SHARED_BYTES:
            return
        for folder in folders:
            with contextlib.suppress(CorruptFileError, OSError):
                for name, listed in self.folder_files(folder).items():
                    source = self.path(folder) / name
                    # Read, whatever is known of it: what is given up here is a good copy.
                    if listed == digest and has_digest(source, digest):
                        link = hidden_beside(path, "partial")
                        link.hardlink_to(source)
                        link.replace(path)
                        return

    @functools.cached_property
    def in_memory(self) -> RunStore:
        """The run's folder in shared memory, which need not exist."""
        return RunStore(shared_memory.folder_of(self.root))

    def holding(self, relative: str) -> RunStore:
        """Return the store with the folder `relative`: shared memory's if it is there."""
        return self.in_memory if self.in_memory.path(relative).exists() else self

    def folder_digest(self, relative: str) -> str:
        """Return the sha256 of a folder's manifest; raises `CorruptFileError` without one."""
        return hashlib.sha256(self._manifest(relative)).hexdigest()

    def folder_files(self, relative: str) -> dict[str, str]:
        """Return a folder's digests by file; raises `CorruptFileError` without a manifest."""
        return listed_files(self._manifest(relative), self.path(relative) / FOLDER_MANIFEST)

    def _manifest(self, relative: str) -> bytes:
        try:
            return (self.path(relative) / FOLDER_MANIFEST).read_bytes()
        except FileNotFoundError:
            raise CorruptFileError(f"{self.path(relative)} is missing or incomplete") from None

    def folder_bytes(self, relative: str) -> int:
        """Return the bytes of a folder's files; raises `CorruptFileError` without a manifest."""
        return sum((self.path(relative) / n).stat().st_size for n in self.folder_files(relative))

    def verify_folder(self, relative: str, sha256: str) -> Path:
        """Return the folder's path once every file in it matches; raises `CorruptFileError`."""
        raise_damage(self.check_folder(relative, sha256))
        return self.path(relative)

    @contextlib.contextmanager
    def verifying_folder(
        self, relative: str, sha256: str, *, but: Collection[str] = ()
    ) -> Iterator[Path]:
        """Verify beside the block, which reads the files meanwhile: nothing that it made of
        them may be used before it ends. Files in `but` the block compares by itself; they are
        hashed if it raises an error.

        Raises `CorruptFileError` in place of what the block raises; a manifest that is not the one
        expected, or a file that is missing, before the block begins.
        """
        with ThreadPoolExecutor(1, thread_name_prefix="verify") as threads:
            checks = self.check_folder(relative, sha256, but=but)
            manifest, damage = next(checks)
            if damage is not None:
                raise CorruptFileError(f"{manifest} {damage}")
            for name in self.folder_files(relative):
                if not (path := self.path(relative) / name).is_file():
                    raise CorruptFileError(f"{path} is missing")
            verifying = threads.submit(raise_damage, checks)
            try:
                yield self.path(relative)
            except Exception:
                verifying.result()
                raise_damage(self.check_folder(relative))
                raise
            finally:
                verifying.result()

    def check_folder(
        self, relative: str, sha256: str | None = None, *, but: Collection[str] = ()
    ) -> Iterator[tuple[Path, str | None]]:
        """Yield a committed folder's files but `but`, its manifest first, and what is wrong with
        each, if anything. Without `sha256` the manifest is taken at its word."""
        folder = self.path(relative)
        manifest = folder / FOLDER_MANIFEST
        try:
            content = manifest.read_bytes()
        except FileNotFoundError:
            yield manifest, "is missing"
            return
        try:
            files = listed_files(content, manifest)
        except CorruptFileError as error:
            yield manifest, str(error).removeprefix(f"{manifest} ")
            return
        if sha256 is not None and hashlib.sha256(content).hexdigest() != sha256:
            yield manifest, "is not the one expected: altered"
            return
        yield manifest, None
        for name in [name for name in files if name not in but]:
            path = folder / name
            yield path, self._damage(path, files[name])

    def _damage(self, path: Path, digest: str) -> str | None:
        """Return what is wrong with a file of a committed folder, if anything is."""
        if not path.is_file():
            return "is missing"
        if self._verified.is_known(path, digest):
            return None
        look = self._verified.look(path)
        if not has_digest(path, digest):
            return "is damaged: its digest does not match"
        self._verified.note(path, digest, look)
        return None

    def remove_folder(self, relative: str, *, sync: BackgroundSync | None = None) -> None:
        """Delete a committed folder; it stops existing at once, whatever the deletion takes. With
        `sync` its files are deleted afterwards, beside other work. Raises `StoreError`."""
        target = self.path(relative)
        if target.exists():
            doomed = hidden_beside(target, "removed")
            with writing(target):
                target.rename(doomed)
                if sync is None:
                    delete_folder(doomed)
                else:
                    sync.remove(doomed)
        self._verified.forget(target)

    def numbered(self, relative: str) -> list[tuple[int, Path]]:
        """Return the entries of a folder whose names are numbers, by these numbers, such as those
        of `steps/`. Anything else there, such as a copy called `000003.bak`, is ignored."""
        entries = self.path(relative).glob("[0-9]*")
        return sorted((int(e.name), e) for e in entries if re.fullmatch(r"[0-9]+", e.name))

    def remove_leftovers(self, relative: str, *, of: str = "") -> None:
        """Delete hidden leftovers of killed commits and deletions in `relative`, or those `of` one
        name. For the one process that commits there. Raises `StoreError`."""
        for leftover in self.path(relative).glob(f".{of}*"):
            if leftover.suffix not in {".partial", ".removed", ".replaced"}:
                continue
            with writing(leftover):
                if leftover.is_dir() and not leftover.is_symlink():
                    delete_folder(leftover)
                else:
                    leftover.unlink(missing_ok=True)
