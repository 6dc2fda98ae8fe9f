"""Files of pinned packages."""

import re


def pinned(text: str) -> dict[str, str]:
    """Version by package, under the names that indexes compare."""
    lines = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)$", text, re.MULTILINE)
    return {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in lines}
