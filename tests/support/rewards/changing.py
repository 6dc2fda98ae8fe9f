"""Reward functions that change what they are given: lists of their rows, prompts, completions."""

from tests.support.rewards.failing import calls


def judged(prompts, completions, **kwargs):
    """Build the conversation of a judge in the prompt's own list."""
    for prompt, completion in zip(prompts, completions, strict=True):
        prompt.append(completion[0])
    return [float(len(prompt)) for prompt in prompts]


def countdown(numbers, **kwargs):
    """Use a number of the row up."""
    scores = []
    for left in numbers:
        scores.append(float(len(left)))
        if left:
            left.pop()
    return scores


def nested(facts, **kwargs):
    """Change what lies deep in a row."""
    scores = []
    for each in facts:
        scores.append(float(len(each["seen"][0]["by"])))
        each["seen"][0]["by"].append("me")
    return scores


def drops_a_completion(completions, **kwargs):
    """Change the list of the completions itself, which later functions are given."""
    scores = [float(len(completions))] * len(completions)
    completions[0] = completions[0] * 2
    return scores


def prompt_lengths(prompts, **kwargs):
    return [float(len(prompt)) for prompt in prompts]


async def prompt_lengths_later(prompts, **kwargs):
    return prompt_lengths(prompts)


def fails_after_its_changes(numbers, **kwargs):
    """Raise an error, the first time, with its changes already made."""
    scores = countdown(numbers)
    if calls("changed") == 0:
        raise OSError("away")
    return scores


def ends_after_its_changes(prompts, **kwargs):
    """End the process, the first time, with its changes already made."""
    scores = prompt_lengths(prompts)
    for prompt in prompts:
        prompt.clear()
    if calls("ended") == 0:
        import os

        os._exit(3)
    return scores


def fails_on_some(prompts, completions, **kwargs):
    """Fail wherever a completion says so, else return the lengths of the prompts."""
    if any("bad" in completion[0]["content"] for completion in completions):
        raise OSError("bad")
    return prompt_lengths(prompts)
