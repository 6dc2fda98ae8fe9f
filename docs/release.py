"""What a release says of itself. `make dist` asks.

    python docs/release.py [TAG]

Prints the section of CHANGELOG.md about this version. Raises `SystemExit` if there is none, or if
TAG is the tag of another version.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def changes(root: Path, tag: str) -> str:
    """Return the version's section, without its heading."""
    version = re.search(
        r'^__version__ = "(.+)"$', (root / "mortal_steps/__init__.py").read_text(), re.MULTILINE
    )
    assert version is not None, "mortal_steps/__init__.py names no version"
    if tag and tag != f"v{version[1]}":
        raise SystemExit(f"the tag is {tag}, but mortal_steps/__init__.py says {version[1]}")
    _, _, rest = (root / "CHANGELOG.md").read_text().partition(f"\n## {version[1]}\n")
    if not rest:
        raise SystemExit(f"CHANGELOG.md has no section '## {version[1]}'")
    return rest.partition("\n## ")[0].strip()


if __name__ == "__main__":
    print(changes(ROOT, sys.argv[1] if len(sys.argv) > 1 else ""))
