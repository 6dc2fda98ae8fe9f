"""Pictures are not left out without a word."""

import json

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.checks import check_pictures
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.types import Problem
from tests.support.refused import refused


def check(config, problem):
    check_pictures(config.data.source, config.model, problem)


@pytest.mark.parametrize("column", ["image", "images"])
def test_a_column_of_pictures_is_refused_for_a_model_that_takes_them(column, tmp_path):
    config = RunConfig(model={"name_or_path": str(tmp_path)}, data={"source": "rows.jsonl"})
    with_one = Problem(id="train-0", prompt="abc", columns={column: "cat.png"})
    settings = tmp_path / "config.json"
    settings.write_text(json.dumps({"text_config": {}}))
    check(config, with_one)
    settings.write_text(json.dumps({"text_config": {}, "vision_config": {}}))
    check_pictures(
        config.data.source,
        config.model,
        Problem(id="train-0", prompt="abc", columns={"answer": "4"}),
    )
    with pytest.raises(ConfigError, match=f"has a column '{column}'.* trains on text alone"):
        check(config, with_one)


def test_so_it_is_for_a_model_of_the_hub_of_which_nothing_is_known():
    config = RunConfig(model={"name_or_path": "org/model"}, data={"source": "org/rows"})
    check_pictures(
        config.data.source,
        config.model,
        Problem(id="train-0", prompt="abc", columns={"answer": "4"}),
    )
    with refused(ConfigError, "'images'"):
        check_pictures(
            config.data.source,
            config.model,
            Problem(id="train-0", prompt="abc", columns={"images": []}),
        )
