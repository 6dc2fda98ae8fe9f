"""What to write instead: hints for a configuration file that cannot be used as it stands."""

import contextlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mortal_steps.config.section import leaves, values_in

DATA_FILE = re.compile(r"(?P<path>[^:]+\.(?:jsonl|json|parquet|csv))")
CODE_FILE = re.compile(r"(?P<path>[^:]+\.py):\w+")
BARE = re.compile(r"^\s*(?P<key>[\w.\"'-]+)\s*=\s*(?P<value>[A-Za-z~./][^\"'#]*?)\s*(?:#.*)?$")
"""A line of TOML that gives a key text without quotes."""
LINE = re.compile(r"\(at line (\d+), column \d+\)")


def of_toml(error: str, text: str) -> str:
    """Return what to add to an error of TOML: the line, and that text needs quotes."""
    found = LINE.search(error)
    lines = text.splitlines()
    if found is None or not 0 < int(found[1]) <= len(lines):
        return ""
    line = lines[int(found[1]) - 1]
    bare = BARE.match(line)
    if bare is None or bare["value"] in ("true", "false", "inf", "nan"):
        return f": {line.strip()}"
    quoted = json.dumps(bare["value"], ensure_ascii=False)
    return f": {line.strip()}; text needs quotes: {bare['key']} = {quoted}"


def of_list(given: str, annotation: Any) -> str:
    """Return the list that a text stands for, where a list is to be written."""
    items: Any = None
    if leaves(annotation) & {int, float}:
        with contextlib.suppress(ValueError):
            items = json.loads(f"[{given}]")
    if items is None:
        items = [part.strip() for part in given.split(",")]
    return f"write a list: {json.dumps(items)}"


def beside(path: Path, values: Mapping[str, Any]) -> str | None:
    """Return what to say of the first file that is named by a relative path and lies beside the
    configuration file, not in the working folder; None without one."""
    folder = path.parent
    if folder.absolute() == Path.cwd():
        return None
    for key, text in values_in(values):
        if not isinstance(text, str):
            continue
        found = DATA_FILE.fullmatch(text) or CODE_FILE.fullmatch(text)
        if key == "model.name_or_path" and (text.startswith(".") or "/" not in text):
            name = text
        elif found is not None:
            name = found["path"]
        else:
            continue
        here = Path(name).expanduser()
        if not here.is_absolute() and not here.exists() and (folder / name).exists():
            return (
                f"{key} = {text!r}: no such file or folder in {Path.cwd()}, where relative paths "
                f"start. It is beside {path.name}: run the command in {folder}, or write "
                f"{(folder / name).absolute()}"
            )
    return None
