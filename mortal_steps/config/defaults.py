"""The default dataset of a run without a configuration file: programming problems with test
cases."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from mortal_steps.config.reward_forms import SANDBOX
from mortal_steps.errors import ConfigError

CODE_DATASET: Mapping[str, Any] = {
    "source": "OpenCoder-LLM/opc-sft-stage2",
    "config": "educational_instruct",
    "prompt_column": "instruction",
    "max_samples": 128,
}
"""Settings of `[data]`. The test cases are in the column `testcase`, which the sandbox knows."""


def without_file(values: Mapping[str, Any]) -> dict[str, Any]:
    """Nested values of a configuration with `CODE_DATASET` where they name no `data.source`.

    The model is the default of `model.name_or_path`, and without a reward the sandbox scores.
    Raises `ConfigError` for rewards of another kind without a dataset.
    """
    whole = copy.deepcopy(dict(values))
    data, rewards = whole.get("data") or {}, whole.get("rewards") or {}
    if not isinstance(data, dict) or not isinstance(rewards, dict) or data.get("source"):
        return whole  # what is no table, whoever checks the values says
    named = [*(rewards.get("functions") or ()), *(rewards.get("terms") or ())]
    if named not in ([], [SANDBOX]):
        raise ConfigError(
            f"data.source names no dataset for the reward {named[0]!r} to score; name one with "
            "--dataset"
        )
    whole["data"] = {**CODE_DATASET, **data}
    return whole
