"""Modal's client for interpreters that do not have it.

In Modal's containers the client and what it needs come from Modal, not from the image. A stand-in
interpreter without `modal` gets them from the interpreter that runs the plane, at the end of its
path, so that its own versions go first.
"""

from __future__ import annotations

import functools
import importlib.metadata
import re
import subprocess
from pathlib import Path

ENTRYPOINT = "modal._container_entrypoint"


def run_entrypoint(python: Path, folder: Path) -> list[str]:
    """The command that runs a container's entrypoint.

    Args:
        folder: Where links to the client's packages are made if `python` needs them.
    """
    if _has_modal(python):
        return [str(python), "-m", ENTRYPOINT]
    if not folder.exists():
        _link_packages(folder)
    code = (
        f"import runpy, sys; sys.path.append({str(folder)!r}); "
        f"runpy.run_module({ENTRYPOINT!r}, run_name='__main__', alter_sys=True)"
    )
    return [str(python), "-c", code]


@functools.cache
def _has_modal(python: Path) -> bool:
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('modal') is None)"
    return subprocess.run([str(python), "-I", "-c", code]).returncode == 0


def _link_packages(folder: Path) -> None:
    """Links to the top-level files of modal and of everything it requires."""
    folder.mkdir(parents=True)
    wanted, done = ["modal"], set()
    while wanted:
        name = wanted.pop()
        if name in done:
            continue
        done.add(name)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform or Python
        for requirement in distribution.requires or []:
            if "extra ==" not in requirement:
                wanted.append(re.split(r"[\s\[<>=!~;(]", requirement, maxsplit=1)[0].lower())
        for top in {file.parts[0] for file in distribution.files or []}:
            source = Path(str(distribution.locate_file(top))).resolve()
            if top not in ("..", "__pycache__") and source.exists():
                link = folder / top
                if not link.exists():
                    link.symlink_to(source)
