"""Which columns of a row rewards look at, as far as that can be seen without importing them."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mortal_steps.config import RewardsConfig, RewardTerm
from mortal_steps.users_code.files import files_behind
from mortal_steps.users_code.project import folders_of


def named_columns(
    rewards: RewardsConfig, columns: Iterable[str], working_dir: Path
) -> Sequence[str]:
    """Return the columns whose names stand in the files or the settings of a reward; all of them
    for a reward that is a function and has no file of the user's."""
    told = [_told_by(term, working_dir) for term in rewards.all_terms]
    return [name for name in columns if any(text is None or _has(text, name) for text in told)]


def _told_by(term: RewardTerm, working_dir: Path) -> str | None:
    """Return all that a reward's files and settings say; None if that says nothing of columns."""
    modules = [code.rpartition(":")[0] for code in term.code]
    paths = {
        path
        for module in modules
        for path in files_behind(module, folders_of(module, working_dir), working_dir)
    }
    found = [path.read_text("utf-8", "replace") for path in sorted(paths) if path.is_file()]
    if not found and term.type in ("function", "pickled"):
        return None
    return "\n".join([*found, str(term.model_dump())])


def _has(text: str, name: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text) is not None
