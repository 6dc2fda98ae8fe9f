"""Digest of MORTAL's own code: both sides of a call between machines must have the same."""

import hashlib
from pathlib import Path

import mortal_steps


def sources_sha256() -> str:
    """Return the digest of every Python file of `mortal_steps`."""
    folder = Path(mortal_steps.__file__).parent
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*.py")}
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(name.encode() + b"\0" + files[name].read_bytes() + b"\0")
    return digest.hexdigest()
