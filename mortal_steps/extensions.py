"""The registry of every kind of extension: names in the configuration, and the code behind them.

    TRACKERS = Registry("logging.report_to", {"wandb": Extension(factory="module:Class", ...)})

To add an implementation, write one file and one entry. Wherever a name of a table may be written,
a user's own `module:name` or `path/file.py:name` may be, too: it is imported from the folder in
which the run began (`users_code/loading.py`). Nothing is imported until `load` is called; what must
be known before stands in the entry.
"""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from mortal_steps.users_code.loading import import_code, is_in_file, names_code


@dataclass(frozen=True, kw_only=True, slots=True)
class Extension:
    """An entry of a table: what is known of the code before it is imported."""

    factory: str
    """`module:name` of the class or function."""
    needs: str | None = None
    """Module that must be installed; None if MORTAL itself installs it."""
    install: str = ""
    """How to get it."""


Entry = TypeVar("Entry", bound=Extension)


class Registry(Mapping[str, Entry], Generic[Entry]):
    """The entries by their names, in order of preference. `key` is the configuration's."""

    def __init__(self, key: str, entries: Mapping[str, Entry]) -> None:
        self.key = key
        self._entries = dict(entries)
        self._kind = type(next(iter(self._entries.values())))

    def __getitem__(self, name: str) -> Entry:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def check(self, name: str) -> str:
        """Return a known name, `module:name` or `path/file.py:name`; otherwise raise `ValueError`
        with the nearest known name."""
        if name in self._entries or names_code(name):
            return name
        near = nearest(name, self._entries, cutoff=0.6)
        meant = f"did you mean {near!r}? There are" if near else "there are"
        raise ValueError(
            f"{name!r} is not known; {meant} {', '.join(self)}, and what you write yourself, as "
            "'module:name' or 'path/file.py:name'"
        )

    def entry(self, name: str) -> Entry:
        """Return the entry of a name; for a user's own code, an entry made for it."""
        module = None if is_in_file(name) else name.partition(":")[0]
        return self._entries.get(name, self._kind(factory=name, needs=module))

    def load(self, name: str, key: str = "") -> Any:
        """Import what a name stands for; raises `ConfigError`. `key`: which has the name."""
        factory = self.entry(name).factory
        return import_code(factory, f"{key or self.key} = {factory!r}")


def simple(entries: Mapping[str, str]) -> dict[str, Extension]:
    """Return entries of which nothing but the `module:name` has to be known."""
    return {name: Extension(factory=factory) for name, factory in entries.items()}


def nearest_path(path: Path, is_one: Callable[[Path], bool] = Path.exists) -> str:
    """Return a hint at the most similar name beside a path that does not exist, or at where
    relative paths start."""
    folder = path.parent
    if not folder.is_dir():
        return f" (nor a folder {folder}); relative paths start at {Path.cwd()}"
    near = nearest(path.name, (each.name for each in folder.iterdir() if is_one(each)), cutoff=0.6)
    return f"; did you mean {folder / near}?" if near else f" in {folder.absolute()}"


def nearest(name: str, known: Iterable[str], *, cutoff: float) -> str | None:
    """Return the known name that is most like an unknown one, if one is, or that it abbreviates."""
    names = list(known)
    meant = [each for each in names if abbreviates(name, each)]
    return next(iter(meant or difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)


def abbreviates(name: str, known: str) -> bool:
    """Return whether a name is made of the first letters of a known name's words, as `lr` is of
    `learning_rate`."""
    words = known.split("_")
    return len(words) > 1 and name == "".join(word[:1] for word in words)
