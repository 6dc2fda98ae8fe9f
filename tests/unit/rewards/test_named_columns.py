"""orchestration.trials.named_columns: the columns that are shown beside the scores."""

from pathlib import Path
from typing import Any

import pytest

from mortal_steps.config import RewardsConfig
from mortal_steps.orchestration.trials.named_columns import named_columns

COLUMNS = ("answer", "level", "source", "id")


@pytest.mark.parametrize(
    ("rewards", "named"),
    [
        ({"functions": ["own.py:f"]}, ["answer", "level"]),
        ({"terms": [{"type": "exact", "column": "source"}]}, ["source"]),
        ({"functions": ["mortal.rewards.functions:math_equal"]}, list(COLUMNS)),
        ({"functions": ["own.py:f"], "terms": []}, ["answer", "level"]),
    ],
)
def test_columns_are_those_that_code_and_settings_name(
    tmp_path: Path, rewards: dict[str, Any], named: list[str]
) -> None:
    (tmp_path / "own.py").write_text(
        "import helper\ndef f(completions, answer, **valid): return helper.g(answer, valid)\n"
    )
    (tmp_path / "helper.py").write_text("def g(answer, rest): return rest['level']\n")
    assert named_columns(RewardsConfig(**rewards), COLUMNS, tmp_path) == named
