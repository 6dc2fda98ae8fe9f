"""`python -m mortal`."""

import sys
from pathlib import Path

if not sys.flags.safe_path and sys.path[:1] != [str(Path(__file__).parents[1])]:
    del sys.path[0]  # the working folder, whose files are to hide nothing installed

from mortal.command import main

main()
