"""Tries to import a tracker: `python -m mortal_steps.report.trackers.importing module:Class`.

The last line of what it prints says why it cannot be imported.
"""

from __future__ import annotations

import sys

from mortal_steps.errors import ConfigError
from mortal_steps.report.trackers.base import tracker_class


def main() -> None:
    """Exit status 0 if it can be imported."""
    try:
        tracker_class(sys.argv[1])
    except ConfigError as error:
        sys.exit(str(error).replace("\n", " "))


if __name__ == "__main__":
    main()
