"""Which completions of a batch are truncated, in the way that TRL finds it out.

A run knows it: `Completion.finish_reason`. TRL's trainers know tokens alone. They take a completion
for truncated unless its last token ends a sequence or is padding (`ids[-1] not in eos_and_pad`),
and so would take one that ended with a stop string, or with the words of an environment.
"""

from __future__ import annotations

from mortal_steps.types import Completion


class Ending(int):
    """The last token of a completion that has ended. Whoever asks whether it is the end token is
    told so; to everything that computes with it, it is the token that it is."""

    end_id: int | None
    """The token that TRL looks for; None if the tokenizer has none, for which TRL looks then."""

    def __eq__(self, other: object) -> bool:
        return other == self.end_id or super().__eq__(other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__


def trained_ids(
    completion: Completion, max_completion_length: int, end_id: int | None
) -> list[int]:
    """Return the tokens of a completion that are trained on; the last one is an `Ending` if the
    completion has ended with it. Of any other completion, TRL's own judgement stands."""
    ids = list(completion.token_ids[:max_completion_length])
    if _has_ended(completion) and len(ids) == len(completion.token_ids):
        ids[-1] = ending = Ending(ids[-1])
        ending.end_id = end_id
    return ids


def _has_ended(completion: Completion) -> bool:
    """Whether it ended by itself; an episode that had no room for its next turn did not."""
    episode = completion.episode
    had_room = episode is None or episode.stop != "length"
    return completion.finish_reason == "stop" and had_room
