"""Load the reward functions that terms and names stand for; a term's class may be a user's own."""

import difflib
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import ValidationError

from mortal_steps.config import RewardTerm
from mortal_steps.config.loader import in_plain_words
from mortal_steps.errors import RewardError
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.rewards.environments import RewardEnvironment
from mortal_steps.rewards.users_code.children import offer_file
from mortal_steps.rewards.users_code.project import folders_of, make_importable


def load_reward(spec: str) -> RewardFunction:
    """Load the function that `spec` names, from the working folder. Raises `RewardError` with what
    is wrong and the nearest name."""
    named = f"rewards.functions: {spec!r}"
    function: Any = import_code(spec, named, "function", inspect.isfunction)
    if _is_environment(function):
        return _made(function, {}, named)
    if inspect.isclass(function) or not callable(function):
        kind = "a class" if inspect.isclass(function) else f"of type {type(function).__name__}"
        raise RewardError(
            f"{named} is {kind}, not a function; name a function or an object that can be called, "
            "or a subclass of RewardTerm as the `type` of an entry in rewards.terms"
        )
    called: RewardFunction = function
    return called


def load_environment(spec: str, options: Mapping[str, Any]) -> RewardEnvironment:
    """Load the environment that `spec` names: an instance, or a class made with `options`. Raises
    `RewardError`."""
    named = f"rewards.terms: environment = {spec!r}"
    found = import_code(spec, named, "Class", _is_environment)
    if isinstance(found, RewardEnvironment) and not options:
        return found
    if not _is_environment(found):
        raise RewardError(
            f"{named} is no subclass of mortal.rewards.RewardEnvironment, or an instance of one "
            "that is given options; name the class"
        )
    return _made(found, options, named)


def _is_environment(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, RewardEnvironment)


def _made(
    kind: type[RewardEnvironment], options: Mapping[str, Any], named: str
) -> RewardEnvironment:
    try:
        return kind(**options)
    except ValidationError as error:
        raise RewardError(f"{named}: {'; '.join(map(_explain, error.errors()))}") from None
    except (TypeError, ValueError) as error:
        raise RewardError(f"{named} with {dict(options)}: {error}") from error


def load_term(term: RewardTerm) -> RewardFunction:
    """Return a term's function, importing a user's class. Raises `RewardError` as `load_reward`,
    for no `RewardTerm`, and for settings that it does not take."""
    if type(term) is not RewardTerm:
        return term.load()
    named = f"rewards.terms: type = {term.type!r}"
    kind = import_code(term.type, named, "Class", inspect.isclass)
    if not (inspect.isclass(kind) and issubclass(kind, RewardTerm)):
        raise RewardError(
            f"{named} is no subclass of RewardTerm, which stands in "
            "mortal_steps.rewards.kinds; derive it from that"
        )
    try:
        own: RewardTerm = kind.model_validate(term.model_dump())
    except ValidationError as error:
        raise RewardError(f"{named}: {'; '.join(map(_explain, error.errors()))}") from None
    return own.load()


def _explain(detail: Mapping[str, Any]) -> str:
    key = ".".join(map(str, detail["loc"]))
    return f"{key} = {detail['input']!r}: {in_plain_words(detail['msg'])}"


def import_code(spec: str, named: str, noun: str, is_one: Callable[[Any], bool]) -> Any:
    """Import what `spec` names: `package.module:name` or `path/file.py:name`.

    Errors begin with `named`, which says where the spec stands, and call the thing a `noun`. If the
    module has no such name, the nearest among those for which `is_one` holds is suggested. Raises
    `RewardError`.
    """
    module_name, _, name = spec.rpartition(":")
    is_file = module_name.endswith(".py")
    if not name.isidentifier() or not (
        is_file or all(map(str.isidentifier, module_name.split(".")))
    ):
        raise RewardError(
            f"{named} names no {noun.lower()}; write `package.module:{noun}` or "
            f"`path/file.py:{noun}`"
        )
    module = (
        _module_of_file(Path(module_name), named)
        if is_file
        else _module_of_name(module_name, named)
    )
    if not hasattr(module, name):
        known = [key for key, value in vars(module).items() if is_one(value)]
        raise RewardError(f"{named}: {module_name} has no {name!r}{_hint(name, known)}")
    return getattr(module, name)


def _module_of_name(name: str, named: str) -> ModuleType:
    make_importable([Path.cwd()], name)
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
    """Import a file as a module; the same one for two functions of the same file."""
    try:
        source = path.read_bytes()
    except OSError as error:
        beside = [p.name for p in path.parent.glob("*.py")] if path.parent.is_dir() else []
        hint = _hint(path.name, beside, prefix=f"{path.parent}/")
        raise RewardError(
            f"{named}: cannot read {path.absolute()} ({error.strerror}){hint}"
        ) from None
    name = f"mortal_reward_{path.stem}_{hashlib.sha256(source).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    folders = folders_of(str(path), Path.cwd())
    make_importable(folders)
    module_spec = importlib.util.spec_from_file_location(name, path)
    assert module_spec is not None and module_spec.loader is not None  # it ends in .py
    module = sys.modules[name] = importlib.util.module_from_spec(module_spec)
    try:
        module_spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _import_failed(named, error) from error
    offer_file(name, path, source, folders)
    return module


def _import_failed(named: str, error: BaseException) -> RewardError:
    own = [f for f in traceback.extract_tb(error.__traceback__) if "importlib" not in f.filename]
    trace = "".join(traceback.format_list(own[1:]))
    return RewardError(f"{named} cannot be imported: {type(error).__name__}: {error}\n{trace}")


def _hint(name: str, known: Iterable[str], prefix: str = "") -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {prefix}{near[0]}?" if near else ""
