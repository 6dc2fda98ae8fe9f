"""The results of task runs, which Prefect keeps in files.

A run outlasts a disk that takes no more of them, and neither memory nor files grow with its steps.
"""

import shutil
from pathlib import Path

from prefect.context import FlowRunContext
from prefect.filesystems import LocalFileSystem
from prefect.logging import get_run_logger
from prefect.results import get_result_store
from pydantic import PrivateAttr


class ResultFolder(LocalFileSystem):
    """A `LocalFileSystem` that does without what cannot be written."""

    _block_type_name = "MORTAL result folder"
    _block_type_slug = "mortal-result-folder"
    _warned: bool = PrivateAttr(default=False)

    async def awrite_path(self, path: str, content: bytes) -> str:
        try:
            return str(await super().awrite_path(path, content))
        except OSError as error:
            if not self._warned:
                self._warned = True
                get_run_logger().warning(
                    "cannot write to %s: %s. Training goes on, but the server may not show it: "
                    "free some space, or set MORTAL_STATE_DIR to a folder on another disk",
                    self.basepath,
                    error.strerror,
                )
        return str(Path(str(self.basepath)) / path)


def use_result_folder() -> None:
    """Let this flow run's tasks persist through `ResultFolder` at the set place; another result
    storage of the user's stays."""
    store = get_result_store()
    storage = store.result_storage
    if type(storage) is LocalFileSystem and storage.basepath:
        folder = Path(storage.basepath).expanduser().resolve()
        store.result_storage = ResultFolder(basepath=str(folder))


def drop_results(run_uid: str, before: int | None = None) -> None:
    """Delete results of steps before this one, or all: a process that goes on asks for none."""
    if FlowRunContext.get() is None:
        return
    storage = get_result_store().result_storage
    if not isinstance(storage, ResultFolder):
        return  # the user's own storage is the user's to clear
    folder = Path(str(storage.basepath)) / run_uid
    if before is None:
        shutil.rmtree(folder, ignore_errors=True)
        return
    for path in folder.glob("*/[0-9]*"):
        step = path.name.partition("-")[0]
        if step.isdecimal() and int(step) < before:
            path.unlink(missing_ok=True)


def forget_results() -> None:
    """Drop Prefect's notes on which task run made which result, for results that are no longer in
    use. Prefect keeps the state of every result and of each of its fields until the flow run ends,
    about 4 KB per task run, in order to link task runs to those whose results they use."""
    context = FlowRunContext.get()
    if context is None:
        return
    links = context.run_results
    for key in [key for key, (_, _, ref) in links.items() if ref is None or ref() is None]:
        del links[key]
    # The same with what task runs have made of Prefect's assets, of which no stage has any.
    assets = context.task_run_assets
    for task_run_id in [task_run_id for task_run_id, made in assets.items() if not made]:
        del assets[task_run_id]
