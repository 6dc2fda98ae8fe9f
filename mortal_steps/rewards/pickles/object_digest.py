"""A digest of an object's content: the same in another process, and for the same code elsewhere in
its file.

Of a function it takes the bytecode, the constants and names in it, its defaults, and the values of
what it refers to: closure variables and globals, recursively. File names and line numbers are left
out. What can be imported goes by its name, since whoever holds the digest imports it as well: the
caller records the user's own modules among them. Another object goes by its class and state, as
`pickle` would keep them.
"""

from __future__ import annotations

import copyreg
import enum
import functools
import hashlib
import os
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from mortal_steps.errors import RewardError
from mortal_steps.rewards.pickles.bytecode import globals_of, imports_of

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
MOST_DEPTH = 180
"""Each level takes four calls of Python's, which allows a thousand."""


class UnpicklableError(RewardError):
    """An object has no digest, and could not travel to another process either."""


def digest_of(value: Any, called: str) -> tuple[str, frozenset[str]]:
    """The digest, hexadecimal sha256, and the modules that are imported for the object.

    `called` is how an error names the object. Raises `UnpicklableError` for what has none.
    """
    digester = _Digester()
    digest = digester.of(value, called)
    return digest, frozenset(digester.modules)


def is_imported(value: Any) -> str | None:
    """The module that a function or class is imported from by its name, if it can be."""
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
        self._open: dict[int, int] = {}
        self._known: dict[int, tuple[Any, str]] = {}

    def of(self, value: Any, path: str) -> str:
        """The digest of a value that is reached by `path`."""
        if isinstance(value, PLAIN) and type(value) in PLAIN:
            return _hash(type(value).__name__, repr(value))
        number = id(value)
        if number in self._open:  # it holds itself
            return _hash("above", str(len(self._open) - self._open[number]))
        if number in self._known:
            return self._known[number][1]
        if len(self._open) > MOST_DEPTH:
            raise UnpicklableError(f"{path:.80}... is nested more than {MOST_DEPTH} levels deep")
        self._open[number] = len(self._open)
        try:
            digest = self._made(value, path)
        finally:
            del self._open[number]
        self._known[number] = (value, digest)  # held, so that its id stays its own
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
        exactly = _EXACT.get(type(value))
        if exactly is not None:
            return exactly(self, value, path)
        for kind, digest in _KINDS:
            if isinstance(value, kind):
                return digest(self, value, path)
        return self._object(value, path)

    def _function(self, value: types.FunctionType, path: str) -> str:
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        return _hash(
            "function",
            self._code(value.__code__, path),
            self.of(value.__defaults__, f"{path}'s defaults"),
            self.of(value.__kwdefaults__, f"{path}'s defaults"),
            *(_hash(name, self._cell(cell, f"{path}: {name}")) for name, cell in cells),
            *(
                _hash(name, self.of(value.__globals__[name], f"{path}: {name}"))
                for name in sorted(set(globals_of(value.__code__)))
                if name in value.__globals__
            ),
            self.of(value.__dict__, f"{path}'s attributes"),
        )

    def _cell(self, cell: types.CellType, path: str) -> str:
        try:
            held = cell.cell_contents
        except ValueError:
            return _hash("empty")
        return self.of(held, path)

    def _code(self, code: types.CodeType, path: str) -> str:
        self.modules.update(imports_of(code))
        return _hash(
            "code",
            code.co_code.hex(),
            code.co_exceptiontable.hex(),
            repr((code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount)),
            repr((code.co_flags, code.co_names, code.co_varnames)),
            repr((code.co_freevars, code.co_cellvars)),
            *(
                self._code(one, path)
                if isinstance(one, types.CodeType)
                else self.of(one, f"a constant of {path}")
                for one in code.co_consts
            ),
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

    def _sequence(self, value: Iterable[Any], path: str) -> str:
        items = (self.of(item, f"{path}[{place}]") for place, item in enumerate(value))
        return _hash(type(value).__name__, *items)

    def _set(self, value: Iterable[Any], path: str) -> str:
        items = sorted(self.of(item, f"an element of {path}") for item in value)
        return _hash(type(value).__name__, *items)

    def _dict(self, value: Mapping[Any, Any], path: str) -> str:
        """In its order, which Python code may go by."""
        items = (
            _hash(self.of(key, f"a key of {path}"), self.of(held, f"{path}[{key!r:.40}]"))
            for key, held in value.items()
        )
        return _hash("dict", *items)

    def _method(self, value: types.MethodType, path: str) -> str:
        owner = self.of(value.__self__, f"the object of {path}")
        return _hash("method", owner, value.__func__.__name__)

    def _wrapped(self, value: Any, path: str) -> str:
        return _hash(type(value).__name__, self.of(value.__func__, path))

    def _property(self, value: property, path: str) -> str:
        parts = (self.of(one, path) for one in (value.fget, value.fset, value.fdel))
        return _hash("property", *parts)

    def _cached_property(self, value: Any, path: str) -> str:
        return _hash("cached_property", self.of(value.func, path))

    def _partial(self, value: functools.partial[Any], path: str) -> str:
        parts = (value.func, value.args, value.keywords)
        return _hash("partial", *(self.of(part, path) for part in parts))

    def _cached(self, value: functools._lru_cache_wrapper[Any], path: str) -> str:
        """One that is imported goes by its name, as its reduction has it."""
        if is_imported(value) is not None:
            return self._object(value, path)
        how = repr(sorted(value.cache_parameters().items()))
        return _hash("cached", how, self.of(value.__wrapped__, path))

    def _environment(self, value: Any, path: str) -> str:
        """That of the process that scores, whatever it is here."""
        return _hash("environment", "bytes" if value is os.environb else "text")

    def _member(self, value: enum.Enum, path: str) -> str:
        return _hash("member", self.of(type(value), f"the class of {path}"), value.name)

    def _object(self, value: Any, path: str) -> str:
        """By what `pickle` would keep of it."""
        for name, held in getattr(value, "__dict__", {}).items():
            if name.startswith(OF_MODAL):
                return _hash("wrapped", self.of(held, path))
        try:
            made = copyreg.dispatch_table.get(type(value))
            kept = made(value) if made else value.__reduce_ex__(4)
        except Exception as error:
            raise UnpicklableError(
                f"{path} is of type {type(value).__name__}, which cannot be kept in a file "
                f"({error}); make it inside the function when it is called, or put it in a module "
                "of its own and import it there"
            ) from error
        if isinstance(kept, str):
            return self._named(value, kept, path)
        how, arguments, state, items, pairs = (*kept, None, None, None, None)[:5]
        if isinstance(state, dict) and {LOADED, KNOWN} <= state.keys():
            state = state[LOADED] or state[KNOWN]
        return _hash(
            "object",
            self.of(how, f"the class of {path}"),
            self.of(arguments, path),
            self.of(state, path),
            self.of(list(items) if items is not None else None, path),
            self.of(list(pairs) if pairs is not None else None, path),
        )

    def _named(self, value: Any, name: str, path: str) -> str:
        module = str(getattr(value, "__module__", ""))
        if module not in ("", "__main__"):
            self.modules.add(module)
        elif module and not isinstance(value, typing.TypeVar):  # cloudpickle keeps those otherwise
            raise UnpicklableError(
                f"{path} is kept in a file by its name alone, {name!r}, and only this process "
                "finds that; put it in a module of its own and import it there"
            )
        return _hash("named", module, name)


_KINDS: tuple[tuple[Any, Callable[[_Digester, Any, str], str]], ...] = (
    (enum.Enum, _Digester._member),
    (types.FunctionType, _Digester._function),
    (types.MethodType, _Digester._method),
    (type, _Digester._class),
    (staticmethod | classmethod, _Digester._wrapped),
    (property, _Digester._property),
    (functools.cached_property, _Digester._cached_property),
    (functools.partial, _Digester._partial),
    (functools._lru_cache_wrapper, _Digester._cached),
    (type(os.environ), _Digester._environment),
)
_EXACT: dict[type, Callable[[_Digester, Any, str], str]] = {
    list: _Digester._sequence,
    tuple: _Digester._sequence,
    set: _Digester._set,
    frozenset: _Digester._set,
    dict: _Digester._dict,
    types.MappingProxyType: _Digester._dict,
}


def _hash(*parts: str) -> str:
    """Each part with its length: no two sequences of parts read the same."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode("utf-8", "surrogatepass")
        digest.update(f"{len(encoded)}:".encode())
        digest.update(encoded)
    return digest.hexdigest()
