"""Assembles one complete model folder for a server: links to the run's files, and a tokenizer.

    runs/.serving-x1y2z3/
      hub/models--RUN/              laid out like the hub's cache: transformers' server lists the
        refs/main                   models there, and knows this one by the name of its folder
        snapshots/12/               the model folder
      adapter/                      a LoRA adapter, for vLLM
      server.log

The files are hard links, so the server keeps them even if the run goes on and deletes the version.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mortal_steps.errors import StoreError
from mortal_steps.policy.model_files.exporting import Export, export_in_process
from mortal_steps.rollout.weight_sync.canary import PROBE_FILE
from mortal_steps.runs.run import Run
from mortal_steps.runs.starting_model import base_folder, tokenizer_files
from mortal_steps.serving.saved import SavedModel
from mortal_steps.store.files import link_file
from mortal_steps.system.scratch import Scratch

PREFIX = ".serving-"
TOKENIZER_CONFIG = "tokenizer_config.json"
CHAT_TEMPLATE = "chat_template.jinja"
ANCHOR = "<|im_start|>"
"""The text by which transformers' server finds where the answer of a Qwen model begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ServedModel:
    """The model that a server serves."""

    run_id: str
    step: int
    """Train steps done."""
    name: str
    """Its name in the API: the run's id, or `RUN@STEP`."""
    model: Path
    """A complete model folder. If there is an adapter, this is the adapter's base."""
    adapter: Path | None
    """Folder of the adapter; None if the model has none."""
    hub: Path
    """A folder laid out like the hub's cache, with the model in it under its name."""

    @property
    def other_name(self) -> str:
        """The second name of the model: `RUN@STEP` if `name` is the run's id, and the other way
        round."""
        both = {self.run_id, f"{self.run_id}@{self.step}"}
        return (both - {self.name}).pop()


@contextlib.contextmanager
def scratch(runs_dir: Path) -> Iterator[Path]:
    """A new folder in the runs directory, so that it is on the same file system as the runs.

    Folders that killed servers left there are removed. Raises `StoreError` if the runs directory is
    not writable.
    """
    try:
        made = Scratch(runs_dir.absolute(), PREFIX)
    except OSError as error:
        raise StoreError(
            f"{runs_dir} is not writable ({error.strerror}): a server needs a folder there for "
            "links to the model's files"
        ) from error
    try:
        yield made.path
    finally:
        made.remove()


def assemble(
    run: Run, saved: SavedModel, folder: Path, *, step_named: bool, merged: bool
) -> ServedModel:
    """Fill a scratch folder with the model that `saved` names, in the form that servers take.

    With `step_named`, the model is called `RUN@STEP`, otherwise `RUN`. An adapter is merged into
    its base if `merged` is set, and otherwise lies beside it. Raises `ModelError` if a checkpoint
    cannot be exported, and `CorruptFileError` if a file is damaged.
    """
    run_id = run.info.run_id
    repository = folder / "hub" / f"models--{run_id}"
    model = repository / "snapshots" / str(saved.step)
    _write(repository / "refs" / (str(saved.step) if step_named else "main"), str(saved.step))
    adapter: Path | None = None
    if saved.kind == "adapter" and not merged:
        adapter = folder / "adapter"
        _link_committed(run, saved, adapter)
        _link_tokenizer(run, adapter)
        model = base_folder(run)
    else:
        model.mkdir(parents=True)
        if saved.kind == "model":
            _link_committed(run, saved, model)
        else:
            _export(run, saved, model)
        _link_tokenizer(run, model)
        _tell_where_answers_begin(model)
    return ServedModel(
        run_id=run_id,
        step=saved.step,
        name=f"{run_id}@{saved.step}" if step_named else run_id,
        model=model,
        adapter=adapter,
        hub=folder / "hub",
    )


def _export(run: Run, saved: SavedModel, folder: Path) -> None:
    adapter, model = saved.kind == "adapter", run.config.model
    export = Export(
        base=str(base_folder(run)) if adapter else None,
        dtype=model.dtype,
        trust_remote_code=model.trust_remote_code,
        quantization=model.quantization if adapter else {},
    )
    export_in_process(run.store.path(saved.path), folder, export)


def _link_committed(run: Run, saved: SavedModel, folder: Path) -> None:
    for name in run.store.folder_files(saved.path):
        if name != PROBE_FILE:
            link_file(run.store.path(saved.path) / name, folder / name)


def _link_tokenizer(run: Run, folder: Path) -> None:
    for path in tokenizer_files(run):
        if not (folder / path.name).exists():
            link_file(path.resolve(), folder / path.name)


def _tell_where_answers_begin(folder: Path) -> None:
    """Tell transformers' server where the answers of a Qwen model begin.

    The server parses the answers of every Qwen model as Qwen's own chat template writes them. With
    another template, it would return the prompt in front of each answer.
    """
    kind = str(_read_json(folder / "config.json").get("model_type", ""))
    path = folder / TOKENIZER_CONFIG
    settings = _read_json(path)
    if not kind.startswith("qwen") or "response_template" in settings:
        return
    template = folder / CHAT_TEMPLATE
    text = (
        template.read_text(encoding="utf-8") if template.exists() else settings.get("chat_template")
    )
    if not text or ANCHOR in str(text):
        return
    ends = settings.get("eos_token")
    closed = {"close_pattern": re.escape(ends)} if isinstance(ends, str) else {}
    settings["response_template"] = {
        "defaults": {"role": "assistant"},
        "start_anchor_pattern": r"(?s).+\Z",  # after the whole prompt
        "fields": {"content": {"content": "text", **closed}},
    }
    path.unlink()  # a link to the run's own file
    path.write_text(json.dumps(settings, indent=1))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
