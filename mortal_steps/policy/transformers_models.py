"""transformers, imported so that it looks through its models once.

To learn which module has which class, it reads every file of its models: when it is imported, and
again when `transformers.models` is. Its cache is too small to have the answer the second time,
unless it is asked in the same words. That saves 0.3 s of a core.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from transformers.utils import import_utils

SCAN = "create_import_structure_from_path"


def _import_models() -> None:
    scan = getattr(import_utils, SCAN, None)
    if scan is None:  # in another version of transformers
        return

    def asked_again(path: str | Path) -> Any:
        """As transformers asks when it is imported: for the folder, as a `Path`."""
        return scan(Path(path).parent if Path(path).is_file() else Path(path))

    setattr(import_utils, SCAN, asked_again)
    try:
        importlib.import_module("transformers.models")
    finally:
        setattr(import_utils, SCAN, scan)


_import_models()
