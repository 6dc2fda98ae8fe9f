"""Stands in for an import that begins to use the GPU, as a fork then finds it."""

import sys
from types import SimpleNamespace

sys.modules["torch"] = SimpleNamespace(cuda=SimpleNamespace(_is_in_bad_fork=lambda: True))
