"""The recipe of examples/recipe: its rows are those of its script, and its stages are runs."""

import json
import re

import pytest

from examples.recipe.rows import make_rows
from mortal_steps.plan.loader import parse_config, read_toml
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "recipe"
RECIPE = read_toml(FOLDER / "recipe.toml")


def rows(name):
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]


@pytest.mark.parametrize("split", ["train", "eval"])
def test_the_files_are_those_of_the_script(split):
    for name, made in make_rows(split).items():
        assert rows(f"{name}-{split}.jsonl") == made


def test_what_is_preferred_are_three_letters_and_a_full_stop():
    """So a reward model can tell the two apart without a look at the letters themselves."""
    preferred = re.compile(r"[a-z]{3}\.")
    for pair in rows("preferences-train.jsonl"):
        assert preferred.fullmatch(pair["chosen"]) and not preferred.fullmatch(pair["rejected"])


@pytest.mark.parametrize("name", ["sft", "rm", "grpo"])
def test_each_stage_is_a_run_that_reads_files_of_the_example(name):
    values = {**RECIPE["defaults"], **RECIPE["stages"][name]}
    for table in ("model", "training"):
        values[table] = {**RECIPE["defaults"][table], **values[table]}
    config = parse_config(values)
    for source in (config.data.source, config.data.eval_source):
        assert (ROOT / source).is_file()
