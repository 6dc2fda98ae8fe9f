"""A reward's digest is the same wherever it is taken."""

import subprocess
import sys

from tests.support.paths import ROOT
from tests.support.rewards.said_script import digests_of


def test_another_process_finds_the_same_digests():
    """With hash randomization: there, sets come in another order."""
    probe = "from tests.support.rewards.said_script import digests_of; print(*digests_of())"
    told = subprocess.run(
        [sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == digests_of()
