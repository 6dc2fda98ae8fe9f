"""Which installed distribution has which package, and which is ours."""

from __future__ import annotations

import importlib.metadata
import inspect
from collections import defaultdict
from collections.abc import Iterator

DISTRIBUTION = "mortal-rl"
"""What this project is installed as. On PyPI, `mortal` is a package of somebody else's."""


def packages_distributions() -> dict[str, list[str]]:
    """`importlib.metadata.packages_distributions` in a tenth of its time.

    That one parses the metadata of a distribution for each package of it, and makes a path of each
    file. transformers and TRL call it when they are imported.
    """
    found: defaultdict[str, list[str]] = defaultdict(list)
    for distribution in importlib.metadata.distributions():
        packages = (distribution.read_text("top_level.txt") or "").split()
        name = _name(distribution)
        for package in packages or set(_inferred(distribution)):
            found[package].append(name)
    return dict(found)


def _name(distribution: importlib.metadata.Distribution) -> str:
    header = (distribution.read_text("METADATA") or "").partition("\n\n")[0]
    for line in header.splitlines():
        if line.startswith("Name:"):
            return line.removeprefix("Name:").strip()
    return distribution.metadata["Name"]


def _inferred(distribution: importlib.metadata.Distribution) -> Iterator[str]:
    """The packages and modules among the files of a wheel that does not list them."""
    record = distribution.read_text("RECORD")
    if record is None:
        files = [str(file) for file in distribution.files or ()]
    else:
        files = [line.lstrip('"').partition(",")[0] for line in record.splitlines()]
    for file in files:
        folder, _, below = file.partition("/")
        package = folder if below else inspect.getmodulename(file)
        if package and "." not in package:
            yield package
