"""Files of the Volume that holds the runs, from a machine that does not mount it."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import modal
from modal.exception import NotFoundError, ResourceExhaustedError
from modal.types import FileEntry, FileEntryType

from mortal_steps.errors import CorruptFileError
from mortal_steps.places.modal.inside.host import no_more_data
from mortal_steps.places.modal.retry import call_with_retries
from mortal_steps.store.files import writing, writing_beside


class RunsVolume:
    """Whole files by their path from the Volume's root. Every method is patient, and raises as
    `call_with_retries` does. `may_write` is awaited before each try of an upload, and raises where
    this process may not."""

    def __init__(self, name: str, may_write: Callable[[], Awaitable[None]] | None = None) -> None:
        self.name = name
        self._may_write = may_write
        self._volume = modal.Volume.from_name(name, version=2)

    async def upload(self, files: Mapping[str, bytes | Path]) -> None:
        """Write files, content or a file here by path there, all of them at once; those that are
        there are replaced. Raises `StoreError` if the Volume is full."""

        async def once() -> None:
            if self._may_write is not None:
                await self._may_write()
            try:
                async with self._volume.batch_upload.aio(force=True) as batch:
                    for path, content in files.items():
                        source = io.BytesIO(content) if isinstance(content, bytes) else content
                        batch.put_file(source, path)
            except ResourceExhaustedError as error:
                raise no_more_data(error) from error

        await call_with_retries(self.name, once)

    async def read(self, path: str) -> bytes:
        """Return a file's content; raise `CorruptFileError` if there is none."""
        content = await self.find(path)
        if content is None:
            raise CorruptFileError(f"{path} is missing on the Volume {self.name}")
        return content

    async def find(self, path: str) -> bytes | None:
        async def once() -> bytes | None:
            try:
                return b"".join([block async for block in self._volume.read_file.aio(path)])
            except FileNotFoundError:
                return None

        return await call_with_retries(self.name, once)

    async def download(self, path: str, target: Path) -> None:
        """Write a file of any size to `target`, whole or not at all. Raises `CorruptFileError` if
        it is missing, `StoreError`."""

        async def once() -> None:
            with writing_beside(target) as file:
                try:
                    await self._volume.read_file_into_fileobj.aio(path, file)
                except FileNotFoundError:
                    raise CorruptFileError(f"{path} is missing on the Volume {self.name}") from None

        with writing(target):
            await call_with_retries(self.name, once)

    async def files(self, folder: str) -> list[str]:
        """Paths of every file below a folder; empty where there is no such folder."""
        entries = await self._list(folder, recursive=True)
        return sorted(entry.path for entry in entries if entry.type == FileEntryType.FILE)

    async def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it; nothing is done where there is none."""

        async def once() -> None:
            with contextlib.suppress(FileNotFoundError, NotFoundError):
                await self._volume.remove_file.aio(folder, recursive=True)

        await call_with_retries(self.name, once)

    async def folders(self, folder: str) -> list[str]:
        """Names of the folders in a folder; empty where there is no such folder."""
        entries = await self._list(folder, recursive=False)
        return sorted(
            Path(entry.path).name for entry in entries if entry.type == FileEntryType.DIRECTORY
        )

    async def _list(self, folder: str, *, recursive: bool) -> list[FileEntry]:
        async def once() -> list[FileEntry]:
            try:
                return await self._volume.listdir.aio(folder, recursive=recursive)
            except (FileNotFoundError, NotFoundError):
                return []

        return await call_with_retries(self.name, once)
