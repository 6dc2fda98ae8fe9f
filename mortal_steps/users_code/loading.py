"""Import what a name stands for: `package.module:name` or `path/file.py:name`."""

import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from mortal_steps.errors import ConfigError, MortalError
from mortal_steps.users_code.children import offer_file
from mortal_steps.users_code.project import OURS, folders_of, make_importable

NAMED = re.compile(r"([^\W\d]\w*(\.[^\W\d]\w*)*|[^:\0]+\.py):[^\W\d]\w*")


def names_code(spec: str) -> bool:
    """Return whether it has the form `package.module:name` or `path/file.py:name`."""
    return NAMED.fullmatch(spec) is not None


def is_in_file(spec: str) -> bool:
    """Return whether what is named is in a file, and not in a module that is imported by name."""
    return spec.rpartition(":")[0].endswith(".py")


def import_code(
    spec: str,
    named: str,
    *,
    noun: str = "Name",
    is_one: Callable[[Any], bool] = callable,
    error: type[MortalError] = ConfigError,
) -> Any:
    """Import what `spec` names. Modules and files are looked for in the working folder first.

    Errors begin with `named`, which says where the spec stands, and call the thing a `noun`. If the
    module has no such name, the nearest among those for which `is_one` holds is suggested. Raises
    `error`; a `MortalError` of the module itself is raised as it is.
    """
    module_name, _, name = spec.rpartition(":")
    if not names_code(spec):
        raise error(
            f"{named} names no {noun.lower()}; write `package.module:{noun}` or "
            f"`path/file.py:{noun}`"
        )
    try:
        if is_in_file(spec):
            module = _module_of_file(Path(module_name))
        else:
            module = _module_of_name(module_name)
    except MortalError:
        raise
    except _NotThereError as missing:
        raise error(f"{named}: {missing}") from None
    except (Exception, SystemExit) as failure:
        raise error(_import_failed(named, failure)) from failure
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if is_one(value)]
        raise error(f"{named}: {module_name} has no {name!r}{_hint(name, known)}")
    return getattr(module, name)


class _NotThereError(Exception):
    """There is no such module or file."""


def _module_of_name(name: str) -> ModuleType:
    if name.partition(".")[0] not in OURS:
        make_importable([Path.cwd()], name)
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            raise
    parent = missing.rpartition(".")[0]
    paths = getattr(sys.modules[parent], "__path__", []) if parent else None
    known = [module.name for module in pkgutil.iter_modules(paths)]
    hint = _hint(missing.rpartition(".")[2], known, prefix=f"{parent}." if parent else "")
    otherwise = "start in the folder that it is in, or install it"
    raise _NotThereError(f"no module {missing!r} from {Path.cwd()}{hint}; {otherwise}")


def _module_of_file(path: Path) -> ModuleType:
    """Import a file as a module; the same one for two names in the same file."""
    try:
        source = path.read_bytes()
    except OSError as error:
        beside = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        hint = _hint(path.name, beside, prefix=f"{path.parent}/")
        raise _NotThereError(f"cannot read {path.absolute()} ({error.strerror}){hint}") from None
    name = f"mortal_file_{path.stem}_{hashlib.sha256(source).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    folders = folders_of(str(path), Path.cwd())
    make_importable(folders)
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None  # it ends in .py
    module = sys.modules[name] = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    offer_file(name, path, source, folders)
    return module


def _import_failed(named: str, error: BaseException) -> str:
    """Return what an import has raised, with the user's part of the trace."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "importlib" not in f.filename and f.filename != __file__]
    trace = "".join(traceback.format_list(own))
    return f"{named} cannot be imported: {type(error).__name__}: {error}\n{trace}"


def _hint(name: str, known: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
