"""Sources in the working folder, and what `load_problems` makes of them."""

import json
from pathlib import Path
from typing import Any

from mortal_steps.config import DataConfig
from mortal_steps.data.problems import load_problems
from mortal_steps.types import Problem

SPELL = {
    "source": "reasoning_gym:spell_backward",
    "options": {"size": 300, "min_word_len": 3, "max_word_len": 3},
}


def write_lines(name: str, rows: list[Any]) -> str:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
    return name


def load(**keys: Any) -> tuple[list[Problem], list[Problem]]:
    return load_problems(DataConfig(**keys), seed=0)


def prompts(problems: list[Problem]) -> list[Any]:
    return [problem.prompt for problem in problems]
