"""From a problem's prompt to the token ids that a completion continues, as TRL's trainer does it.

Chat messages go through the tokenizer's chat template with the generation prompt added; text goes
through the tokenizer as it is, special tokens included:

    "abc="                                -> tokenizer("abc=")                     -> [5, 6, 7, 30]
    [{"role": "user", "content": "abc="}] -> apply_chat_template(..., add_generation_prompt=True)
"""

from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.errors import DataError
from mortal_steps.types import Problem, Prompt


def tokenize_prompts(
    problems: Sequence[Problem], tokenizer: Any, template_options: Mapping[str, Any]
) -> list[list[int]]:
    """Prompt ids of each problem; raises `DataError` that names the problem it cannot render."""
    return [_prompt_ids(problem, tokenizer, template_options) for problem in problems]


def check_lengths(
    problems: Sequence[Problem],
    prompts_ids: Sequence[Sequence[int]],
    *,
    max_tokens: int,
    max_model_len: int,
) -> None:
    """Raise `DataError` for the first prompt that leaves no room for `max_tokens` more tokens."""
    for problem, prompt_ids in zip(problems, prompts_ids, strict=True):
        if len(prompt_ids) + max_tokens > max_model_len:
            raise DataError(
                f"problem {problem.id!r}: its prompt of {len(prompt_ids)} tokens and "
                f"{max_tokens} sampled tokens do not fit the model's {max_model_len}; "
                "shorten it or sample fewer tokens. A run may go on as a fork: `mortal fork` with "
                "--set data.on_long=drop, a lower rollout.max_tokens or, if the model can take "
                "more, a higher model.max_model_len"
            )


def _prompt_ids(problem: Problem, tokenizer: Any, template_options: Mapping[str, Any]) -> list[int]:
    check_template([problem.prompt], tokenizer, f"problem {problem.id!r}")
    try:
        (ids,) = render([problem.prompt], tokenizer, template_options)
    except Exception as error:
        raise DataError(
            f"problem {problem.id!r}: the chat template raises {type(error).__name__}: {error}"
        ) from error
    if not ids:
        raise DataError(f"problem {problem.id!r}: its prompt {problem.prompt!r} has no tokens")
    return ids


def render(
    prompts: Sequence[Prompt], tokenizer: Any, template_options: Mapping[str, Any]
) -> list[list[int]]:
    """Token ids of prompts of one kind, text or chat messages; raises what the tokenizer does."""
    if len({isinstance(prompt, str) for prompt in prompts}) > 1:
        raise ValueError("text and chat messages are not rendered together")
    if isinstance(prompts[0], str):
        return list(tokenizer(text=list(prompts))["input_ids"])
    rendered = tokenizer.apply_chat_template(
        list(prompts),
        add_generation_prompt=True,
        tokenize=True,
        return_dict=True,
        **template_options,
    )
    return list(rendered["input_ids"])


def check_template(prompts: Sequence[Prompt], tokenizer: Any, whose: str = "the prompt") -> None:
    if tokenizer.chat_template is None and not all(isinstance(prompt, str) for prompt in prompts):
        raise DataError(
            f"{whose} is a list of chat messages, but the tokenizer {tokenizer.name_or_path!r} has "
            "no chat template; use a chat model, or text prompts"
        )
