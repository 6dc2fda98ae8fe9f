"""An object as a file: a line of JSON, then what cloudpickle makes of the object, and of what it
refers to by name in its script.

The line says what the object is, so that a wrong one is refused before any of it is executed: a
pickle is code. It travels by value, so only to the Python that wrote it.
"""

import hashlib
import io
import json
import pickle
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mortal_steps.errors import CorruptFileError, RewardError
from mortal_steps.rewards.pickles.digest import Pickler
from mortal_steps.store.files import write_atomically
from mortal_steps.users_code.children import offer_pickle
from mortal_steps.users_code.project import folders_of, make_importable

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def write_pickle(path: Path, value: Any, digest: str, called: str) -> None:
    """Write the object; raises `RewardError` for one that cannot travel."""
    content = io.BytesIO()
    pickler = Pickler(content)
    try:
        pickler.dump(value)
        pickler.dump(dict(pickler.named))
    except Exception as error:
        raise RewardError(
            f"{called} cannot travel to another process: {type(error).__name__}: {error}; make "
            "what it holds inside the function when it is called, or put it into a module and name "
            "it as 'module:name'"
        ) from error
    head = {
        "object": digest,
        "python": PYTHON,
        "sha256": hashlib.sha256(content.getvalue()).hexdigest(),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, json.dumps(head).encode() + b"\n" + content.getvalue())


def check_pickle(path: Path, digest: str) -> bytes:
    """Return a file's pickle, not executed. Raises `RewardError` if it is missing or another
    Python's, `CorruptFileError` if it was altered."""
    try:
        line, _, content = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise RewardError(
            f"the object {path} cannot be read ({error.strerror}); `train` of the script "
            "that made it writes it again"
        ) from None
    try:
        head = json.loads(line)
        whole = head["sha256"] == hashlib.sha256(content).hexdigest() and head["object"] == digest
        python = head["python"]
    except (ValueError, TypeError, KeyError):
        whole, python = False, PYTHON
    if not whole:
        raise CorruptFileError(
            f"{path} is not the object {digest[:12]}; `train` of the script that made it "
            "writes it again"
        )
    if python != PYTHON:
        raise RewardError(
            f"{path} was written by Python {python}, and Python {PYTHON} cannot execute its "
            f"bytecode; use Python {python}, or put its code into a module and name it as "
            "'module:name'"
        )
    return content


def read_pickle(path: Path, digest: str, modules: Sequence[str]) -> Any:
    """Make the object in a file. `modules`: files and modules of the user's that it imports, as in
    `module:name`. Raises what `check_pickle` does, and `RewardError` where it cannot be made."""
    value, named = _read(path, digest, modules)
    if named:
        offer_pickle(named, path, digest, modules)
    return value


def read_names(path: str, digest: str, modules: Sequence[str]) -> Mapping[str, Any]:
    """Return what the object in a file refers to by name in its script; raises as `read_pickle`."""
    return _read(Path(path), digest, modules)[1]


def _read(path: Path, digest: str, modules: Sequence[str]) -> tuple[Any, Mapping[str, Any]]:
    unpickler = pickle.Unpickler(io.BytesIO(check_pickle(path, digest)))
    for module in modules:
        name = "" if module.endswith(".py") else module
        make_importable(folders_of(module, Path.cwd()), name)
    try:
        value = unpickler.load()
        try:
            return value, unpickler.load()
        except EOFError:  # written before names were kept
            return value, {}
    except Exception as error:
        raise RewardError(
            f"the object {path} cannot be made: {type(error).__name__}: {error}; what it imports "
            "has to be there where it is used"
        ) from error
