"""Code of users in the processes that it starts: pools, workers of torch, joblib.

An interpreter that begins anew ("spawn", and "forkserver", which is Python's default from 3.14 on)
is sent functions by module and name. What a file or a pickle was made into here has a module name
of its own, which it could not import. It is given the `sys.path` of this process, though. So each
such module is written to a folder there, as a file that makes it again, of the same content.
"""

import functools
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from mortal_steps.system.scratch import Scratch
from mortal_steps.users_code.project import make_importable

PREFIX = "mortal-modules-"
MAIN = "__main__"

FILE = """\
from mortal_steps.users_code.children import execute

execute(__name__, {path!r}, {source!r}, {folders!r})
"""
PICKLE = """\
from mortal_steps.rewards.pickles.files import read_names
from mortal_steps.users_code.children import give_names

give_names(__name__, read_names({path!r}, {digest!r}, {modules!r}))
"""


@functools.cache
def _scratch() -> Scratch:
    return Scratch(prefix=PREFIX)


def _offer(name: str, code: str) -> None:
    """Write a module to the folder of this process, which its children find modules in."""
    folder = _scratch().path
    if str(folder) not in sys.path:  # code of users may have set another one since
        sys.path.append(str(folder))
    (folder / f"{name}.py").write_text(code, encoding="utf-8")


def offer_file(name: str, path: Path, source: bytes, folders: Sequence[Path]) -> None:
    """Let children import the module `name`, which was made of this file with these `folders`
    importable."""
    named = [str(folder) for folder in folders]
    _offer(name, FILE.format(path=str(path.absolute()), source=source, folders=named))


def execute(name: str, path: str, source: bytes, folders: Sequence[str]) -> None:
    """Make the module of a file, in a child."""
    make_importable([Path(folder) for folder in folders])
    module = sys.modules[name]
    module.__file__ = path
    exec(compile(source, path, "exec"), vars(module))


def offer_pickle(named: Mapping[str, Any], path: Path, digest: str, modules: Sequence[str]) -> None:
    """Make a module of what an object refers to by name in the script that it is from, and let
    children import it. What is in it is pickled by its name; by cloudpickle, as in a script, with
    its code."""
    import cloudpickle

    name = f"mortal_script_{digest[:12]}"
    while name in sys.modules:  # it was read before, and each has functions of its own
        name += "_"
    sys.modules[name] = ModuleType(name)
    give_names(name, named)
    cloudpickle.register_pickle_by_value(sys.modules[name])
    _offer(name, PICKLE.format(path=str(path.absolute()), digest=digest, modules=list(modules)))


def give_names(module: str, named: Mapping[str, Any]) -> None:
    """Let a module have functions and classes of a script."""
    vars(sys.modules[module]).update(named)
    for value in named.values():
        inside = vars(value).values() if isinstance(value, type) else ()
        for each in (value, *(getattr(one, "__func__", one) for one in inside)):
            if getattr(each, "__module__", None) == MAIN:
                each.__module__ = module
