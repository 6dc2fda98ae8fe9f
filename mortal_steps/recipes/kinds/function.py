"""`type = "function"`: a function of the user's that fills a folder, in a process of its own.

    [stages.gguf]
    type = "function"
    call = "export.py:to_gguf"       # def to_gguf(model: Path, out: Path, bits: int = 8)
    model = "stage:grpo"
    bits = 4

What it prints is in `function.log`, beside the folder that it fills.
"""

import asyncio
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from mortal_steps.compute.devices import VISIBLE, gpus_named
from mortal_steps.config.section import Section
from mortal_steps.errors import ConfigError, DataError, FunctionError, WorkerLostError
from mortal_steps.recipes.identity import code_digest, data_content
from mortal_steps.recipes.kinds.own_table import read_table
from mortal_steps.recipes.products import MadeStage
from mortal_steps.recipes.references import MAIN, Reference, find_reference, replaced
from mortal_steps.recipes.stages import Job, OutputKind, Say, StandIns
from mortal_steps.store.folders import FOLDER_MANIFEST
from mortal_steps.system.child import Child
from mortal_steps.system.processes import ending
from mortal_steps.types.references import check_below
from mortal_steps.users_code.loading import names_code

CALLING = "mortal_steps.recipes.calling"
LOG, CALL, ANSWER = "function.log", "call.pickle", "answer.json"
OUT = "out"
"""The parameter that the folder to fill is given by."""
TOLD = 4000
"""Characters of the log that an error tells, at most."""


class FunctionSettings(Section):
    """`[stages.NAME]` of such a stage; every other key is a parameter of the function."""

    call: str
    """The function: `path/file.py:name` or `module:name`; or a Prefect flow of that name."""
    cache: bool = True
    """Whether it need not be called again for the same inputs, parameters and code. With `false` it
    is called whenever the recipe runs: because it reads the world, such as a page or the time."""
    devices: str = ""
    """GPUs that it computes on, a value of CUDA_VISIBLE_DEVICES such as `0` or `0,1`: it sees these
    alone, and no other stage begins on them before it has ended. Default: it counts as a stage
    without a GPU, and sees what the recipe sees."""
    output: str = ""
    """The file in `out`, such as `rows.jsonl`, that `stage:NAME` stands for, a dataset; the folder
    is then `stage:NAME/folder`. Default: the folder itself."""


class FunctionStage(MadeStage):
    """A function or a Prefect flow of the user's. Its parameters are keys of the stage's table."""

    outputs: ClassVar[Mapping[str, OutputKind]] = {MAIN: "folder"}

    def __init__(self, name: str, values: Mapping[str, Any], recipe: str) -> None:
        super().__init__(name, values, recipe)
        called, own = f"stages.{name}", FunctionSettings.model_fields
        if "call" not in values:
            raise ConfigError(f"{called}.call is not set; write call = 'path/file.py:function'")
        given = {key: value for key, value in values.items() if key in own}
        self._settings = read_table(FunctionSettings, given, called)
        self._parameters = {key: value for key, value in values.items() if key not in own}
        if not names_code(self._settings.call) or find_reference(self._settings.call, ""):
            raise ConfigError(
                f"{called}.call = {self._settings.call!r} names no function; write "
                "'path/file.py:function' or 'module:function'"
            )
        if OUT in self._parameters:
            raise ConfigError(
                f"{called}.{OUT}: the recipe says which folder is filled; leave it out"
            )
        if self._settings.output:
            _check_below(self._settings.output, f"{called}.output")
            # Of this stage, not of the kind: which of the two it is, its table says.
            self.outputs = {MAIN: "dataset", "folder": "folder"}  # type: ignore[misc]

    def wanted(self, reference: Reference) -> Sequence[OutputKind]:
        if reference.key in FunctionSettings.model_fields:
            return super().wanted(reference)
        return ("model", "dataset", "folder", "run")

    def parts(self) -> Any:
        call = self._settings.call
        return {
            "call": call.rpartition(":")[2],
            # What is installed is known by its name.
            "code": code_digest(call) or call,
            "parameters": self._parameters,
            "files": {key: data_content(path, key) for key, path in _paths_in(self._parameters)},
            "output": self._settings.output,
            **({} if self._settings.cache else {"begun": self.begun}),
        }

    def check(self, stand_ins: StandIns, say: Say) -> None:
        """Import the function in a process of its own, and compare its parameters with the keys."""
        self.gpus()
        say(f"importing {self._settings.call}")
        with tempfile.TemporaryDirectory(prefix="mortal-") as folder:
            work, log = Path(folder), Path(folder, LOG)
            child = self._begin(work, log, self._parameters, out=None)
            try:
                self._answer(work, log, child.wait())
            finally:
                child.kill_all()  # where this was interrupted

    def gpus(self) -> frozenset[str]:
        found = gpus_named(self._settings.devices, f"stages.{self.name}.devices")
        return frozenset(gpu.uuid for gpu in found.values())

    def main(self, out: Path) -> str:
        return self._settings.output

    async def make(self, job: Job, work: Path, out: Path, say: Say) -> Mapping[str, float]:
        log = job.folder / LOG
        say(f"calling {self._settings.call}; it prints to {log}")
        given = replaced(self._parameters, lambda each: Path(job.path(each)).absolute())
        child = self._begin(work, log, given, out=out.absolute())
        try:
            metrics = self._answer(work, log, await asyncio.to_thread(child.wait))
        finally:
            child.kill_all()  # where this was interrupted
        if (out / FOLDER_MANIFEST).exists():
            raise DataError(
                f"stages.{self.name}: {self._settings.call} has written {FOLDER_MANIFEST}, the "
                "name of the list of what is in the folder; give the file another name"
            )
        file = self._settings.output
        if not (out / file).is_file() if file else not any(out.iterdir()):
            raise DataError(
                f"stages.{self.name}: {self._settings.call} has written "
                f"{f'no file {file!r}' if file else 'nothing'} to the folder that it is given as "
                f"`{OUT}`"
            )
        return metrics

    def _begin(
        self, work: Path, log: Path, parameters: Mapping[str, Any], out: Path | None
    ) -> Child:
        """Start the process; without `out`, it only looks whether the function can be called."""
        given, answer = work / CALL, work / ANSWER
        answer.unlink(missing_ok=True)
        call = {"spec": self._settings.call, "called": f"stages.{self.name}", "out": out}
        given.write_bytes(pickle.dumps({**call, "parameters": parameters}))
        # -u: what was printed before a kill is in the log.
        command = [sys.executable, "-u", "-P", "-m", CALLING, str(given), str(answer)]
        devices = self._settings.devices
        env = {**os.environ, VISIBLE: devices} if devices else None
        with log.open("wb") as output:
            return Child(command, env=env, output=output)

    def _answer(self, work: Path, log: Path, code: int) -> Mapping[str, float]:
        """Return the metrics of a call that has ended. Raises what became of it otherwise."""
        answer, called = work / ANSWER, f"stages.{self.name}"
        if not answer.exists():
            said = log.read_text(encoding="utf-8", errors="replace")[-TOLD:].rstrip()
            raise WorkerLostError(
                f"{called}: the process of {self._settings.call} was lost ({ending(code)}); what "
                f"it printed last:\n{said}"
            )
        found = json.loads(answer.read_text(encoding="utf-8"))
        if "config" in found:
            raise ConfigError(found["config"])
        if "error" in found:
            raise FunctionError(f"{called}: {self._settings.call} {found['error']}")
        metrics: dict[str, float] = found["metrics"]
        return metrics


def _check_below(file: str, called: str) -> None:
    try:
        check_below(file)
    except ValueError as error:
        raise ConfigError(f"{called} = {file!r}: {error}; name a file below `{OUT}`") from None


def _paths_in(values: Any, key: str = "") -> list[tuple[str, str]]:
    """Return the texts that name a file, or with a slash a folder, each with its key."""
    if isinstance(values, Mapping):
        pairs = [(f"{key}.{name}" if key else str(name), value) for name, value in values.items()]
    elif isinstance(values, list | tuple):
        pairs = [(f"{key}[{number}]", value) for number, value in enumerate(values)]
    else:
        is_one = isinstance(values, str) and _is_there(values)
        return [(key, values)] if is_one and find_reference(values, key) is None else []
    return [found for name, value in pairs for found in _paths_in(value, name)]


def _is_there(text: str) -> bool:
    try:
        return Path(text).is_file() or ("/" in text and Path(text).is_dir())
    except OSError:  # too long for a name
        return False
