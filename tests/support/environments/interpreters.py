"""Another interpreter: a virtual environment with links to what is installed here."""

import sysconfig
import venv
from collections.abc import Iterable
from pathlib import Path

INSTALLED = Path(sysconfig.get_paths()["purelib"])
NEEDED = (
    *("pydantic", "pydantic_core", "annotated_types", "typing_inspection", "typing_extensions.py"),
    *("numpy", "numpy.libs", "cloudpickle", "blake3"),
)


def make_interpreter(folder: Path, names: Iterable[str] = NEEDED) -> str:
    """Make one with the packages and modules of these names, and return its program."""
    venv.create(folder, symlinks=True, with_pip=False)
    (there,) = folder.glob("lib/python*/site-packages")
    for name in names:
        (there / name).symlink_to(INSTALLED / name)
    return str(folder / "bin" / "python")
