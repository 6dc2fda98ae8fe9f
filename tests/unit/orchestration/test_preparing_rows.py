"""How far TRL is with preparing rows, as a user hears of it."""

import time

from mortal_steps.compute.local import REHEARSAL
from mortal_steps.orchestration.checking import rows


def test_the_newest_progress_bar_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(rows, "TOLD_EVERY_S", 0.01)
    bars = (
        "Adding EOS to train dataset: 100%|####| 9/9 [00:00<00:00, 9.00 examples/s]\n"
        "\rTokenizing train dataset:   0%|    | 0/9 [00:00<?, ? examples/s]"
        "\rTokenizing train dataset:  41%|##  | 4/9 [00:00<00:01, 9.00 examples/s]"
    )
    told = []
    with rows._saying_how_far(tmp_path, told.append):
        time.sleep(0.05)
        assert not told, "there is no log yet"
        (tmp_path / f"{REHEARSAL}.log").write_text(bars)
        while not told:
            time.sleep(0.01)
    assert set(told) == {"preparing the rows: tokenizing train dataset, 41 %"}
