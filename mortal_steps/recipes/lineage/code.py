"""The repository of the user's code: its commit, and what was not committed."""

import hashlib
import logging
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

logger = logging.getLogger(__name__)

LONGEST_DIFF = 200_000
"""Characters of a diff that is kept whole."""
MOST_NEW = 100
"""New files that are named."""
PATIENCE_S = 20.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Code:
    """The git repository around a working folder, at a moment."""

    root: str
    """Its folder."""
    commit: str | None
    """None before the first one."""
    diff_sha256: str | None = None
    """Digest of the changes to files that git knows; None: there are none."""
    diff: str | None = None
    """These changes; None where there are none, or too many to keep."""
    new_files: tuple[str, ...] = ()
    """Python files that git neither knows nor ignores, below the working folder."""


def code_around(folder: Path) -> Code | None:
    """Return the repository around a folder as it is now; None where there is none, or no git. One
    that git cannot read is warned of."""
    root = _git(folder, "rev-parse", "--show-toplevel", quiet=True)
    if root is None:
        return None
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD", quiet=True)
    changes = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--full-index")
    diff = _git(folder, *changes, *(["HEAD"] if commit else [])) or ""
    new = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", "--", "*.py") or ""
    return Code(
        root=root.rstrip("\n"),
        commit=commit.strip() if commit else None,
        diff_sha256=_sha256(diff) if diff else None,
        diff=diff if diff and len(diff) <= LONGEST_DIFF else None,
        new_files=tuple(sorted(filter(None, new.split("\0"))))[:MOST_NEW],
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _git(folder: Path, *arguments: str, quiet: bool = False) -> str | None:
    """Return what git answers; None where it does not. Changes nothing in the repository."""
    try:
        asked = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PATIENCE_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            check=False,
        )
    except FileNotFoundError:  # there is no git here
        return None
    except subprocess.TimeoutExpired:
        logger.warning("git did not answer in %.0f s: the record has no %s", PATIENCE_S, arguments)
        return None
    if asked.returncode == 0:
        return asked.stdout.decode("utf-8", "replace")
    if not quiet:
        logger.warning("git %s: %s", arguments[0], asked.stderr.decode("utf-8", "replace").strip())
    return None
