"""A digest of an object's content: the same in another process, and for the same code elsewhere in
its file.

Of a function it takes the bytecode, the constants and names in it, its defaults, and the values of
what it refers to: closure variables and globals, recursively. File names and line numbers are left
out. What can be imported goes by its name, since whoever has the digest imports it as well: the
caller records the user's own modules among them. Another object goes by what `Pickler` keeps of it.
"""

import copyreg
import dis
import functools
import hashlib
import io
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import IO, Any

import cloudpickle

from mortal_steps.errors import RewardError

PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented))
LEFT_OUT = frozenset(
    {
        "__abstractmethods__",
        "__annotate__",
        "__annotate_func__",
        "__annotations__",
        "__annotations_cache__",
        "__classdictcell__",
        "__conditional_annotations__",
        "__dict__",
        "__firstlineno__",
        "__module__",
        "__qualname__",
        "__static_attributes__",
        "__weakref__",
        "_abc_impl",
    }
)
"""Of a class: what follows from the rest, or from where it stands."""
OF_MODAL = "_sync_original_"
"""Beginning of the attribute in which an object of Modal's, such as an Image, has the one that it
stands for."""
LOADED, KNOWN = "_load", "_object_id"
"""What is digested of such an object: how it is made, or which one it is; the rest belongs to this
process."""


class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # it has no types
    """Keeps what cloudpickle keeps, with two exceptions: of a function with a cache also its code,
    and of the environment nothing but the name."""

    def __init__(self, file: IO[bytes]) -> None:
        super().__init__(file)
        self.named: dict[str, Any] = {}
        """What it has kept that its script has a name for: functions and classes."""

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is made again, or `NotImplemented` for pickle's own way."""
        if obj is os.environ or obj is os.environb:
            # The other process has one of its own. This one's may hold keys, too.
            return getattr, (os, "environ" if obj is os.environ else "environb")
        if is_named_in_script(obj):
            self.named[obj.__qualname__] = obj
        if isinstance(obj, functools._lru_cache_wrapper) and is_imported(obj) is None:
            return cached, (obj.__wrapped__, obj.cache_parameters())
        return super().reducer_override(obj)

    def reduced(self, obj: Any) -> Any:
        """Return how an object is made again, in the form of `object.__reduce_ex__`."""
        kept = self.reducer_override(obj)
        if kept is not NotImplemented:
            return kept
        made = self.dispatch_table.get(type(obj)) or copyreg.dispatch_table.get(type(obj))
        return made(obj) if made else obj.__reduce_ex__(4)


def is_named_in_script(value: Any) -> bool:
    """Return whether it is a function or a class that plain pickle finds in the script by name."""
    if not isinstance(value, types.FunctionType | type | functools._lru_cache_wrapper):
        return False
    if value.__module__ != "__main__":
        return False
    of_function = getattr(value, "__globals__", {})
    spaces = (vars(sys.modules["__main__"]), of_function)
    return any(space.get(value.__qualname__) is value for space in spaces)


def cached(function: Callable[..., Any], parameters: dict[str, Any]) -> Any:
    """Return a function with an empty cache. Pickles name this one."""
    return functools.lru_cache(**parameters)(function)


def digest_of(value: Any, called: str) -> tuple[str, frozenset[str]]:
    """Return an object's sha256 and the modules that it imports; `called` names it in errors.
    Raises `RewardError` for what could not travel to another process either."""
    digester = _Digester()
    try:
        digest = digester.of(value, called)
    except RecursionError:
        raise RewardError(f"{called} is nested too deeply to be kept in a file") from None
    return digest, frozenset(digester.modules)


def is_imported(value: Any) -> str | None:
    """Return the module that a function or class is imported from by its name, if it can be."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", getattr(value, "__name__", None))
    if not isinstance(module, str) or not isinstance(name, str) or module == "__main__":
        return None
    if module not in sys.modules or "<locals>" in name:
        return None
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    return module if found is value else None


class _Digester:
    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._pickler = Pickler(io.BytesIO())
        self._open: dict[int, int] = {}
        self._known: dict[int, tuple[Any, str]] = {}

    def of(self, value: Any, path: str) -> str:
        """Return the digest of a value that is reached by `path`."""
        if type(value) in PLAIN:
            return _hash(type(value).__name__, repr(value))
        number = id(value)
        if number in self._open:  # it contains itself
            return _hash("above", str(len(self._open) - self._open[number]))
        if number in self._known:
            return self._known[number][1]
        self._open[number] = len(self._open)
        try:
            digest = self._made(value, path)
        finally:
            del self._open[number]
        self._known[number] = (value, digest)  # kept, so that its id stays its own
        return digest

    def _made(self, value: Any, path: str) -> str:
        if isinstance(value, types.ModuleType):
            self.modules.add(value.__name__)
            return _hash("module", value.__name__)
        if isinstance(value, types.FunctionType | types.BuiltinFunctionType | type):
            module = is_imported(value)
            if module is not None:
                self.modules.add(module)
                return _hash("imported", module, value.__qualname__)
            if value.__module__ == "builtins":  # such as `types.MappingProxyType`
                return _hash("builtin", value.__name__)
        if type(value) in (list, tuple):
            items = (self.of(item, f"{path}[{index}]") for index, item in enumerate(value))
            return _hash(type(value).__name__, *items)
        if type(value) in (set, frozenset):  # their order differs from process to process
            return _hash("set", *sorted(self.of(item, f"an element of {path}") for item in value))
        if type(value) is dict:
            return self._dict(value, path)
        if isinstance(value, types.FunctionType):
            return self._function(value, path)
        if isinstance(value, types.CodeType):
            return self._code(value, path)
        if isinstance(value, types.CellType):
            return self._cell(value, path)
        return self._class(value, path) if isinstance(value, type) else self._object(value, path)

    def _dict(self, value: Mapping[Any, Any], path: str) -> str:
        """In its order, which Python code may go by."""
        items = (
            _hash(self.of(key, f"a key of {path}"), self.of(held, f"{path}[{key!r:.40}]"))
            for key, held in value.items()
        )
        return _hash("dict", *items)

    def _function(self, value: types.FunctionType, path: str) -> str:
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        names = sorted(set(_globals_of(value.__code__)) & value.__globals__.keys())
        return _hash(
            "function",
            self._code(value.__code__, path),
            self.of(value.__defaults__, f"{path}'s defaults"),
            self.of(value.__kwdefaults__, f"{path}'s defaults"),
            *(_hash(name, self.of(cell, f"{path}: {name}")) for name, cell in cells),
            *(_hash(name, self.of(value.__globals__[name], f"{path}: {name}")) for name in names),
            self.of(value.__dict__, f"{path}'s attributes"),
        )

    def _cell(self, cell: types.CellType, path: str) -> str:
        try:
            content = cell.cell_contents
        except ValueError:
            return _hash("empty")
        return self.of(content, path)

    def _code(self, code: types.CodeType, path: str) -> str:
        self.modules.update(_imports_of(code))
        return _hash(
            "code",
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)),
            repr((code.co_flags, code.co_names, code.co_varnames)),
            repr((code.co_freevars, code.co_cellvars)),
            *(self.of(one, f"a constant of {path}") for one in code.co_consts),
        )

    def _class(self, value: type, path: str) -> str:
        own = {name: held for name, held in vars(value).items() if name not in LEFT_OUT}
        slots = own.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            own.pop(name, None)  # how a slot is reached
        return _hash(
            "class",
            value.__name__,
            self.of(type(value), f"{path}'s metaclass"),
            *(self.of(base, f"{path}'s base {base.__name__}") for base in value.__bases__),
            *(_hash(name, self.of(held, f"{path}.{name}")) for name, held in sorted(own.items())),
        )

    def _object(self, value: Any, path: str) -> str:
        for name, original in getattr(value, "__dict__", {}).items():
            if name.startswith(OF_MODAL):
                return _hash("wrapped", self.of(original, path))
        try:
            # cloudpickle gives a type variable another name in each process
            is_variable = isinstance(value, typing.TypeVar)
            kept = value.__name__ if is_variable else self._pickler.reduced(value)
        except Exception as error:
            raise RewardError(
                f"{path} is of type {type(value).__name__}, which cannot be kept in a file "
                f"({error}); make it inside the function when it is called, or put it in a module "
                "of its own and import it there"
            ) from error
        if isinstance(kept, str):
            return self._named(value, kept, path)
        how, arguments, state, items, pairs = (*kept, None, None, None, None)[:5]
        if isinstance(state, dict) and {LOADED, KNOWN} <= state.keys():
            state = state[LOADED] or state[KNOWN]
        parts: Iterable[Any] = (arguments, state, items and list(items), pairs and list(pairs))
        made_by = self.of(how, f"the class of {path}")
        return _hash("object", made_by, *(self.of(part, path) for part in parts))

    def _named(self, value: Any, name: str, path: str) -> str:
        module = str(getattr(value, "__module__", ""))
        if module not in ("", "__main__"):
            self.modules.add(module)
        elif module and not isinstance(value, typing.TypeVar):  # cloudpickle keeps those otherwise
            raise RewardError(
                f"{path} is kept in a file by its name alone, {name!r}, and only this process "
                "finds that; put it in a module of its own and import it there"
            )
        return _hash("named", module, name)


def _globals_of(code: types.CodeType) -> Iterator[str]:
    """Names that the code, and code inside of it, looks up in its module."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"):
            yield str(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from _globals_of(inner)


def _imports_of(code: types.CodeType) -> Iterator[str]:
    """Modules that the code may import; what it takes from one may be a module."""
    imported = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            imported = str(instruction.argval)
            yield imported
        elif instruction.opname == "IMPORT_FROM":
            yield f"{imported}.{instruction.argval}"


def _hash(*parts: str) -> str:
    """Each part with its length: no two sequences of parts read the same."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode())
        digest.update(encoded)
    return digest.hexdigest()
