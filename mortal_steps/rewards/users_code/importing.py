"""From `package.module:name` or `path/file.py:name` to the object of that name in a user's code."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from mortal_steps.errors import RewardError
from mortal_steps.rewards.users_code.project import folders_of, make_importable


def import_spec(spec: str, named: str, noun: str, is_one: Callable[[Any], bool]) -> Any:
    """What `spec` names: `package.module:name` or `path/file.py:name`.

    Errors begin with `named`, which says where the spec stands, and call the thing a `noun`. If the
    module has no such name, the nearest among those for which `is_one` holds is suggested. Raises
    `RewardError`.
    """
    place, _, name = spec.rpartition(":")
    is_file = place.endswith(".py")
    if not name.isidentifier() or not (is_file or _is_dotted_name(place)):
        raise RewardError(
            f"{named} names no {noun.lower()}; write `package.module:{noun}` or "
            f"`path/file.py:{noun}`"
        )
    module = _module_of_file(Path(place), named) if is_file else _module_of_name(place, named)
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if is_one(value)]
        raise RewardError(f"{named}: {place} has no {name!r}{_hint(name, known)}")
    return getattr(module, name)


def _is_dotted_name(place: str) -> bool:
    return all(part.isidentifier() for part in place.split("."))


def _module_of_name(name: str, named: str) -> ModuleType:
    make_importable([Path.cwd()])
    try:
        return importlib.import_module(name)
    except (Exception, SystemExit) as error:
        missing = error.name if isinstance(error, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            raise _import_failed(named, error) from error
        parent = missing.rpartition(".")[0]
        paths = getattr(sys.modules[parent], "__path__", []) if parent else None
        known = [module.name for module in pkgutil.iter_modules(paths)]
        hint = _hint(missing.rpartition(".")[2], known, prefix=f"{parent}." if parent else "")
        raise RewardError(
            f"{named}: no module {missing!r}{hint or f' from {Path.cwd()}'}"
        ) from None


def _module_of_file(path: Path, named: str) -> ModuleType:
    """The file as a module; the same one for two functions of the same file."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        beside = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        hint = _hint(path.name, beside, prefix=f"{path.parent}/")
        raise RewardError(
            f"{named}: cannot read {path.absolute()} ({error.strerror}){hint}"
        ) from None
    name = f"mortal_reward_{path.stem}_{digest[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    make_importable(folders_of(str(path), Path.cwd()))
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None  # it ends in .py
    module = sys.modules[name] = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(named, error) from error
    return module


def _import_failed(named: str, error: BaseException) -> RewardError:
    own = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    trace = "".join(traceback.format_list(own[1:]))
    return RewardError(f"{named} cannot be imported: {type(error).__name__}: {error}\n{trace}")


def _hint(name: str, known: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
