"""Takes longer to import than any test waits; a file tells which process imports it."""

import os
import time
from pathlib import Path

Path(os.environ["IMPORTING"]).write_text(str(os.getpid()))
time.sleep(600)
