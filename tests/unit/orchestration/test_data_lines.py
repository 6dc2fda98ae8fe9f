"""What a dry run shows of data and rewards, and what a run warns of in its first rows."""

import pytest

from mortal_steps.orchestration.checking.data_lines import data_lines, warn_of_answers
from mortal_steps.orchestration.open_run import as_begun, changes
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.policy.starting_model.prompt_lengths import PromptLengths
from mortal_steps.types import Problem

ASKED = {"role": "user", "content": "9+3="}
ANSWERED = {"role": "assistant", "content": "12"}


def lengths(first: str) -> PromptLengths:
    return PromptLengths(tokens=[3, 9], unusable={}, context=16, fits=8, first=first)


def test_data_and_rewards_are_shown() -> None:
    scores = {"correct": [0.0, 0.5], "short": [None, 1.0]}
    assert list(data_lines(lengths("user: a\n"), "train-7", scores)) == [
        "prompt     train-7, as the model reads it: 'user: a\\n'",
        "           the longest has 9 tokens; 8 fit beside the completion",
        "reward     correct = 0.000, 0.500 for the text 'a made-up completion'",
        "reward     short = None (it abstains), 1.000 for the text 'a made-up completion'",
    ]


def test_of_a_long_prompt_both_ends_are_shown() -> None:
    (line, *_) = data_lines(lengths(f"begin{'x' * 9000}end"), "train-0", {})
    assert "'begin" in line and line.endswith("end'") and len(line) < 700


@pytest.mark.parametrize(
    ("prompts", "warned"),
    [
        ([[ASKED, ANSWERED]], True),
        ([[ASKED], [ASKED, ANSWERED, ASKED], [ASKED, ANSWERED]], True),
        ([[ASKED], [ASKED, ANSWERED, ASKED]], False),
        (["a text"], False),
    ],
)
def test_prompts_that_end_with_an_answer_are_warned_of(
    prompts: list[object], warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"id": f"train-{row}", "prompt": prompt} for row, prompt in enumerate(prompts)]
    warn_of_answers([Problem(**row) for row in rows])  # type: ignore[arg-type]
    assert len(caplog.messages) == warned
    assert all("move it into a column of its own" in message for message in caplog.messages)


@pytest.mark.parametrize("was", [True, False])
def test_a_run_keeps_the_rows_that_it_began_with(was: bool) -> None:
    def config(exclude: bool) -> RunConfig:
        data = {"source": "a.jsonl", "exclude_held_out": exclude}
        return RunConfig.model_validate({"data": data})

    assert as_begun(config(not was), config(was)).data.exclude_held_out is was
    assert changes(config(was), config(not was)) == []
