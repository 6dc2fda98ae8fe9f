"""Models that scripts give as objects, in the folder of runs."""

import os
import sys
import time
from pathlib import Path

from mortal.trainer.objects.models import saved

DAY_S = 86400


class Saved:
    def save_pretrained(self, folder):
        (Path(folder) / "config.json").write_text("{}")


def test_two_scripts_may_give_the_same_model_at_once(tmp_path):
    """The other one's folder appears between any two calls."""
    is_over, others = False, []

    def other_script(event, arguments):
        if event == "os.rename" and not is_over and ".saving-" in str(arguments[0]):
            there = Path(str(arguments[1]))
            there.mkdir()
            (there / "config.json").write_text("{}")
            others.append(there)

    sys.addaudithook(other_script)
    kept = saved(str(tmp_path / "runs"), Saved())
    is_over = True
    assert others == [kept]
    assert [path.name for path in kept.parent.iterdir()] == [kept.name]


def test_a_model_that_is_given_again_counts_as_given_now(tmp_path):
    kept = saved(str(tmp_path / "runs"), Saved())
    os.utime(kept, (0, 0))
    assert saved(str(tmp_path / "runs"), Saved()) == kept
    assert time.time() - kept.stat().st_mtime < DAY_S
