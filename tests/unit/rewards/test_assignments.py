"""Where rewards are called. No process is started here."""

from pathlib import Path
from typing import Any

import pytest

from mortal_steps.config import ComputeConfig, RewardsConfig
from mortal_steps.rewards.scoring.assignments import assign

ONE = {"function": "rewards.py:one"}
TWO = {"function": "rewards.py:two"}
BY_PROBLEM = {"function": "rewards.py:each", "calls": "problem", "processes": 3}
MODEL = {"type": "model", "model": "./models/judge"}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([ONE, TWO], [(["one", "two"], 1, False)]),
        ([ONE, MODEL, TWO], [(["one", "two"], 1, False), (["judge"], 1, False)]),
        ([{**ONE, "processes": 1}, TWO], [(["two"], 1, False), (["one"], 1, False)]),
        ([BY_PROBLEM], [(["each"], 3, True)]),
        ([{**ONE, "calls": "problem"}], [(["one"], 1, True)]),
    ],
)
def test_functions_share_a_process_unless_they_ask_for_their_own(
    tmp_path: Path, terms: list[dict[str, Any]], expected: list[Any]
) -> None:
    assignments = assign(
        RewardsConfig.model_validate({"terms": terms}),
        compute=ComputeConfig(),
        gym_rows=False,
        template_options={},
        run_dir=tmp_path,
        before_start=lambda: None,
    )
    found = [(list(each.names), len(each.hosts), each.by_problem) for each in assignments]
    assert found == expected
