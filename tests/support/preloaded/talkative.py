"""Says something while it is imported."""

import os

os.write(1, b"said while importing\n")
