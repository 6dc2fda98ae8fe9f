"""Prompts become the token ids that TRL's own trainer would make of them."""

from __future__ import annotations

import pytest
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from mortal_steps.config import TrainingConfig
from mortal_steps.errors import DataError
from mortal_steps.rollout.prompts import check_lengths, tokenize_prompts
from mortal_steps.types import Problem
from tests.support.refused import refused

TEXTS = ["abc=", " two  spaces ", "unknown: äß\n", "A"]
CHATS = [
    [{"role": "user", "content": "abc="}],
    [{"role": "system", "content": "Reverse."}, {"role": "user", "content": "xyz"}],
]


def problems(prompts):
    return [Problem(id=f"train-{row}", prompt=prompt) for row, prompt in enumerate(prompts)]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("prompts", [TEXTS, CHATS], ids=["text", "chat"])
@pytest.mark.parametrize("chosen", [{}, {"suffix": "!"}, '{"suffix": "?"}'], ids=str)
def test_prompts_are_tokenized_as_trl_does(model_a, tokenizer, tmp_path, prompts, chosen):
    trainer = GRPOTrainer(
        model=str(model_a),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        train_dataset=Dataset.from_dict({"prompt": prompts}),
        args=GRPOConfig(
            output_dir=str(tmp_path),
            report_to="none",
            bf16=False,
            use_cpu=True,
            per_device_train_batch_size=2,
            num_generations=2,
            chat_template_kwargs=chosen or None,
        ),
    )
    trls, _, _ = trainer._tokenize_prompts(prompts)
    options = TrainingConfig(trl={"chat_template_kwargs": chosen}).template_options
    assert tokenize_prompts(problems(prompts), tokenizer, options) == trls


def test_text_and_chat_may_be_mixed(tokenizer):
    mixed = tokenize_prompts(problems(["abc=", CHATS[0]]), tokenizer, {})
    assert tokenizer.batch_decode(mixed) == ["abc=", "user: abc=\nassistant: "]


def test_chat_without_a_template_names_problem_and_remedy(tokenizer):
    class NoTemplate:
        chat_template = None
        name_or_path = "some/model"

    with refused(DataError, "'train-0'", "'some/model'", "chat template"):
        tokenize_prompts(problems(CHATS), NoTemplate(), {})


def test_an_empty_prompt_is_refused(tokenizer):
    with refused(DataError, "'train-1'", "no tokens"):
        tokenize_prompts(problems(["a", ""]), tokenizer, {})


def test_a_prompt_that_leaves_no_room_names_the_lengths():
    rows = problems(["a", "b"])
    check_lengths(rows, [[1] * 5, [1] * 6], max_tokens=4, max_model_len=10)
    with pytest.raises(DataError, match=r"'train-1'.* 7 tokens and 4 .*model's 10; .*max_tokens"):
        check_lengths(rows, [[1] * 5, [1] * 7], max_tokens=4, max_model_len=10)
