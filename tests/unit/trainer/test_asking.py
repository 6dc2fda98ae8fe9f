"""What `generate` was asked, and with which options."""

import pytest

from mortal.trainer.asking import prompts_of, sampling_of
from mortal_steps.config import RunConfig
from mortal_steps.config.loader import parse_config
from mortal_steps.errors import ConfigError, DataError
from mortal_steps.types import SamplingParams


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        (None, "prompts is of type NoneType"),
        ([7], r"prompts\[0\]: 7 is neither text nor a list"),
        (
            [{"role": "user", "content": "1 + 1 ="}],
            r"prompts\[0\].*neither text nor a list of chat",
        ),
        ("", r"prompts\[0\]: the prompt is empty"),
    ],
    ids=str,
)
def test_what_is_no_prompt_is_refused(prompts, said):
    with pytest.raises(DataError, match=said):
        prompts_of(prompts)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"num_generations": 0}, "num_generations = 0: give 1 or more"),
        ({"temperature": -1}, r"evaluation\.temperature = -1"),
        ({"top_p": 2}, r"rollout\.top_p = 2"),
        ({"stop": "\n"}, "write a list"),
    ],
    ids=str,
)
def test_what_no_sampling_goes_by_is_refused(options, said):
    with pytest.raises(ConfigError, match=said):
        sampling_of(RunConfig(), options.pop("num_generations", 1), options)


def test_a_model_is_asked_with_the_limits_of_its_run():
    config = parse_config({"rollout": {"max_tokens": 9, "stop": ["\n"]}})
    assert prompts_of("1 + 1 =") == ["1 + 1 ="]
    assert sampling_of(config, 1, {"temperature": 0}) == SamplingParams(
        max_tokens=9, temperature=0, stop=("\n",)
    )
    assert sampling_of(config, 1, {"max_tokens": 3}).max_tokens == 3
