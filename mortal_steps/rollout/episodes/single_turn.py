"""`single_turn`: the model answers each prompt once."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import Any

from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.episodes.base import Episodes
from mortal_steps.rollout.prompts import check_lengths, tokenize_prompts
from mortal_steps.types import Completion, GeneratedGroup, PolicyVersion, Problem, SamplingParams


class SingleTurn(Episodes):
    """Samples all completions of a shard in one batch."""

    def sample(
        self,
        engine: Engine,
        problems: Sequence[Problem],
        seeds_PG: Sequence[Sequence[int]],
        params: SamplingParams,
        version: PolicyVersion,
    ) -> list[GeneratedGroup]:
        prompts_ids = tokenize_prompts(problems, self.tokenizer, self.template_options)
        check_lengths(
            problems,
            prompts_ids,
            max_tokens=params.max_tokens,
            max_model_len=engine.max_model_len,
        )
        rows = [
            (problem, prompt_ids, seed)
            for problem, prompt_ids, seeds in zip(problems, prompts_ids, seeds_PG, strict=True)
            for seed in seeds
        ]
        sampled = engine.sample(
            [prompt_ids for _, prompt_ids, _ in rows], [seed for *_, seed in rows], params
        )
        texts = self.tokenizer.batch_decode(
            [tokens.token_ids for tokens in sampled], skip_special_tokens=True
        )
        completions = iter(
            [
                Completion(
                    token_ids=tokens.token_ids,
                    logprobs=tokens.logprobs,
                    text=text,
                    finish_reason=tokens.finish_reason,
                    seed=seed,
                    policy_version=version,
                    message=self.message_of(problem, prompt_ids, tokens.token_ids),
                )
                for (problem, prompt_ids, seed), tokens, text in zip(
                    rows, sampled, texts, strict=True
                )
            ]
        )
        return [
            GeneratedGroup(
                problem=problem,
                prompt_ids=prompt_ids,
                completions=list(itertools.islice(completions, len(seeds))),
            )
            for problem, prompt_ids, seeds in zip(problems, prompts_ids, seeds_PG, strict=True)
        ]

    def message_of(
        self, problem: Problem, prompt_ids: Sequence[int], token_ids: Sequence[int]
    ) -> dict[str, Any] | None:
        """Return what the tokenizer makes of a chat's completion, where it can."""
        if isinstance(problem.prompt, str) or not can_parse(self.tokenizer):
            return None
        return parse_response(self.tokenizer, token_ids, prompt_ids)


# A tokenizer with a `response_template` parses what its model writes into content, reasoning and
# tool calls, and TRL gives reward functions that. (With the older `response_schema` alone, which
# this transformers does not know any more, TRL ends in an error; here there is text.) What follows
# is `trl.chat_template_utils.parse_response`, which is not at hand where vLLM runs.


def can_parse(tokenizer: Any) -> bool:
    """Whether TRL would let the tokenizer parse the completions of chats."""
    return getattr(tokenizer, "response_template", None) is not None


def parse_response(
    tokenizer: Any,
    token_ids: Sequence[int],
    prompt_ids: Sequence[int],
    tools: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return the message that a completion is; its plain text as content where it cannot be
    parsed. The arguments of calls get the types that the schemas of `tools` say."""
    ids, known = list(token_ids), None if tools is None else list(tools)
    try:
        message = tokenizer.parse_response(ids, prefix=list(prompt_ids), tools=known)
        if message is None:  # cut short before its content
            raise ValueError("no message")
        if isinstance(message.get("content"), str):
            message["content"] = message["content"].removesuffix(tokenizer.eos_token)
        if not message.get("content"):
            message["content"] = ""
        if "tool_calls" in message:
            _check_tool_calls(message["tool_calls"])
        # What no record can hold (half of a surrogate pair, nan) is no message either.
        json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, TypeError):
        content = tokenizer.decode(ids, skip_special_tokens=True)
        message = {"role": "assistant", "content": content}
    return dict(message)


def _check_tool_calls(calls: Any) -> None:
    """Raise `ValueError` for calls that chat templates cannot render; no arguments are `{}`."""
    if calls is None:
        return
    if not isinstance(calls, list):
        raise ValueError("the tool calls are no list")
    for call in calls:
        called = call.get("function", call) if isinstance(call, dict) else None
        if not isinstance(called, dict) or not isinstance(called.get("name"), str):
            raise ValueError("a tool call has no name")
        if called.get("arguments") is None:
            called["arguments"] = {}
