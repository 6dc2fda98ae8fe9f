"""The user's files that a function is made of, parsed and not executed."""

import ast
from collections.abc import Iterator
from pathlib import Path

from mortal_steps.users_code.project import find_in, folders_of


def files_behind(module: str, working_dir: Path) -> Iterator[Path]:
    """Every file of the user's that a module, or a file, leads to."""
    is_file, folders = module.endswith(".py"), folders_of(module, working_dir)
    waiting = [(working_dir / module).absolute()] if is_file else find_in(folders, module)
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        yield path
        for name, base in _imports(path):
            waiting += find_in([base] if base else folders, name, relative=base is not None)


def _imports(path: Path) -> Iterator[tuple[str, Path | None]]:
    """Yield the dotted names that a file imports, each with the folder a relative one starts in."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return  # the reward host says what is wrong with it
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = path.parents[node.level - 1] if node.level else None
            start = f"{node.module}." if node.module else ""
            yield from ((f"{start}{alias.name}", base) for alias in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            name = getattr(node.args[0], "value", None)
            if called in ("import_module", "__import__") and isinstance(name, str):
                yield name, None
