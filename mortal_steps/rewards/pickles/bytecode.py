"""What a function's bytecode looks up in its module, and what it imports."""

from __future__ import annotations

import dis
import types
from collections.abc import Iterator


def globals_of(code: types.CodeType) -> Iterator[str]:
    """Names that the code, and code inside of it, looks up in its module."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"):
            yield str(instruction.argval)
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield from globals_of(inner)


def imports_of(code: types.CodeType) -> Iterator[str]:
    """Modules that the code imports when it runs; of what it takes from one, each name may be a
    module, too."""
    imported = ""
    for instruction in dis.get_instructions(code):
        if instruction.opname == "IMPORT_NAME":
            imported = str(instruction.argval)
            yield imported
        elif instruction.opname == "IMPORT_FROM":
            yield f"{imported}.{instruction.argval}"
