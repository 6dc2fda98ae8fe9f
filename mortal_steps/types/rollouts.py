"""What one training step is made of, from a problem to the batch that the actor trains on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NewType

PolicyVersion = NewType("PolicyVersion", int)
"""How many train steps made these weights: version 0 is the model the run starts from.

One train step consumes one `RolloutBatch`; with `num_iterations` or several mini-batches it takes
more than one optimizer update (`StepResult.optimizer_steps` counts those).
"""

Prompt = str | list[dict[str, Any]]
"""Plain text, or chat messages as `[{"role": "user", "content": "..."}]`, as in TRL."""

FinishReason = Literal["stop", "length"]
"""`stop`: end-of-sequence or a stop string; `length`: `max_tokens` was reached."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ChatSettings:
    """How chats with tools are rendered and read: settled once by TRL, when a run begins, so that
    workers without TRL do the same."""

    chat_template: str | None = None
    """Template that keeps what was rendered before as a prefix of what is rendered after; None: the
    tokenizer's own does."""
    response_template: Mapping[str, Any] | None = None
    """What transformers reads completions with; None: what the tokenizer brings."""
    date: str | None = None
    """Day on which the run began, such as `2026-11-24`: some templates write today's date into each
    prompt, which has to stay the same if the run goes on tomorrow. None: today."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """One dataset row."""

    id: str
    """Stable name of the row inside its dataset, such as `train-7`."""
    prompt: Prompt
    """Text or chat messages."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Every other column; reward functions receive them as keyword arguments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """A span of a completion that the policy sampled in one go."""

    start: int
    """First token of the span: a place in `Completion.token_ids`."""
    stop: int
    """Place after its last token; start < stop <= T. Of an episode that failed, whose tokens are
    not kept, start = stop = 0."""
    seed: int
    """Seed of the turn's random stream, 0 <= seed < 2**63."""
    finish_reason: FinishReason
    """Why sampling ended."""
    round: int
    """Which of the shard's sampled batches the turn was part of, counted from 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """What came of the environment of a completion: its calls, its own scores, its failure."""

    stop: Literal["done", "max_iterations", "length", "failed"]
    """Why there was no further turn: the model called nothing; it called a tool after
    `environment.max_tool_calling_iterations` rounds of calls; the answers did not fit; the
    environment failed."""
    num_calls: int = 0
    """Tool calls that were made, those that failed included."""
    num_failed_calls: int = 0
    """Calls that were answered with an error: an exception of the tool, an unknown tool."""
    scores: Mapping[str, float | None] = field(default_factory=dict)
    """Score of each reward that was computed beside the environment, by its name."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Mean of what these rewards logged by `log_metric`, for all of a problem's completions."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """What these rewards reported of this completion through `log_extra`."""
    failure: str | None = None
    """Of an episode that failed: the boundary and the reason, such as `tool search: no answer
    within 60 s`. It has no scores, and no part in training."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Completion:
    """One continuation of a prompt: sampled, or sampled in turns with an environment's tokens in
    between.

    An environment answers the call `[7, 6]` with the tokens `[40, 41, 42]`, then the policy goes on
    with `[5, 1]`:

        token_ids   [   7,    6,  40,  41,  42,    5,    1]
        logprobs    [-0.1, -0.4, 0.0, 0.0, 0.0, -0.2, -0.0]
        turns       Turn(start=0, stop=2, ...), Turn(start=5, stop=7, ...)
        loss_mask   [   1,    1,   0,   0,   0,    1,    1]      derived from the turns
        num_sampled 4
    """

    token_ids: Sequence[int]
    """Token ids, end-of-sequence and environment's tokens included; length T >= 1."""
    logprobs: Sequence[float]
    """Log-probability (nats) of each sampled token over the whole vocabulary at the temperature,
    0.0 of each token of an environment; length T."""
    text: str
    """The tokens as text, without special tokens."""
    finish_reason: FinishReason
    """Why sampling ended; of the last turn."""
    seed: int
    """Seed of this completion's random stream, 0 <= seed < 2**63; of the first turn. With
    `rollout.seeds = "engine"`, one of those that the shard's only stream is seeded with."""
    policy_version: PolicyVersion
    """Version of the weights that sampled it."""
    message: Mapping[str, Any] | None = None
    """Of a chat, what the tokenizer makes of it (content, reasoning, tool calls), where it has a
    response template."""
    turns: tuple[Turn, ...] = ()
    """What was sampled, in the order of the tokens; empty where all of it was, in one turn."""
    messages: tuple[Mapping[str, Any], ...] = ()
    """What was said in the turns and in between, for reading and for reward functions."""
    prompt_ids: Sequence[int] | None = None
    """Token ids of its own prompt, where that is not the group's."""
    prompt: Sequence[Mapping[str, Any]] | None = None
    """Messages of its own prompt, where an environment's `reset` has added to the problem's."""
    episode: Episode | None = None
    """What came of its environment, if it had one."""
    differing_answer: str | None = None
    """What its environment answered otherwise when it was asked the same again, in words."""

    @property
    def loss_mask(self) -> list[int]:
        """1 for each token that was sampled and is trained on, 0 for each other; length T."""
        if not self.turns:
            return [1] * len(self.token_ids)
        mask = [0] * len(self.token_ids)
        for turn in self.turns:
            mask[turn.start : turn.stop] = [1] * (turn.stop - turn.start)
        return mask

    @property
    def has_failed(self) -> bool:
        """Whether its environment failed, so that it has no part in training."""
        return self.episode is not None and self.episode.failure is not None

    @property
    def num_sampled(self) -> int:
        if not self.turns:
            return len(self.token_ids)
        return sum(turn.stop - turn.start for turn in self.turns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rollout:
    """A completion and what it earned."""

    completion: Completion
    rewards: Mapping[str, float | None]
    """Score of each reward function; None where the function abstained, as in TRL."""
    reward: float | None
    """Weighted sum over the functions that scored; None when every one abstained."""
    teacher_logprobs: bytes | None = None
    """What its teacher said of its tokens, if it has one: packed `TokenLogprobs`
    (mortal_steps/rewards/token_logprobs.py)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutGroup:
    """The G rollouts of one problem; advantages are relative inside it."""

    problem: Problem
    prompt_ids: Sequence[int]
    """Token ids of the rendered prompt; length P >= 1."""
    rollouts: Sequence[Rollout]
    """Length G = `num_generations`, in generation order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutBatch:
    """All groups of one step, in the order of the step's problems."""

    step: int
    """Index of the train step that consumes the batch, counted from 0."""
    policy_version: PolicyVersion
    """Version of the weights that sampled the batch."""
    groups: Sequence[RolloutGroup]
    """Length `batch_size`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SamplingParams:
    """How tokens are drawn; the same meaning for every engine."""

    max_tokens: int
    """Upper bound of tokens per completion, >= 1."""
    temperature: float = 1.0
    """Softmax temperature; 0 is greedy decoding."""
    top_p: float = 1.0
    """Nucleus mass in (0, 1]; 1 keeps every token."""
    top_k: int = 0
    """Number of most likely tokens kept; 0 keeps every token."""
    min_p: float = 0.0
    """Smallest probability kept, relative to the most likely token; 0 keeps every token."""
    stop: tuple[str, ...] = ()
    """Strings that end a completion; they stay part of its tokens."""
