"""`type = "judge"`: let a language model score completions."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mortal_steps.config.field_metadata import NO_NUMBERS
from mortal_steps.config.rewards import RewardTerm
from mortal_steps.config.section import Options, Section
from mortal_steps.rewards.base import RewardFunction
from mortal_steps.users_code.loading import import_code

ENVIRONMENT = "mortal_steps.rewards.judge.environment:LLMJudgeEnvironment"
OPENAI = "https://api.openai.com/v1"
OPENAI_KEY = "OPENAI_API_KEY"
"""Environment variable that OpenAI's own client reads."""


class JudgePrices(Section):
    """Dollars for a million tokens."""

    input: Annotated[float, NO_NUMBERS] = Field(0.0, ge=0)
    output: Annotated[float, NO_NUMBERS] = Field(0.0, ge=0)

    @property
    def are_known(self) -> bool:
        return self.input > 0 or self.output > 0


class JudgeTerm(RewardTerm, extra="forbid"):
    """The score that a model gives, behind any OpenAI-compatible API."""

    type: Literal["judge"] = "judge"
    model: str = Field(min_length=1)
    score_range: tuple[float, float] = (0.0, 10.0)
    """The lowest and the highest score."""
    rubric: str = (
        "Judge how correct, complete and helpful the answer is. The lowest score is for an answer "
        "that is wrong or beside the point, the highest for one that nothing could be added to."
    )
    """What to judge by."""
    prompt: str = "<question>\n{prompt}\n</question>\n\n<answer>\n{completion}\n</answer>"
    """The user's message to the judge; `{prompt}`, `{completion}` and `{column}` of the dataset are
    replaced."""
    base_url: str = OPENAI
    """Address of the API, without `/chat/completions`."""
    api_key_env: Annotated[str | None, NO_NUMBERS] = Field(None, pattern=r"^[A-Za-z_]\w*$")
    """Environment variable that holds the API key; for the default `base_url` `OPENAI_API_KEY`, for
    another address none."""
    parameters: Options = Field(default_factory=lambda: {"temperature": 0.0})
    """Further fields of each request."""
    prices: Annotated[JudgePrices, NO_NUMBERS] = JudgePrices()
    """Dollars for a million tokens of `input` and of `output`; what is paid is counted by them."""
    concurrency: Annotated[int, NO_NUMBERS] = Field(8, ge=1)
    """Requests at a time, of each reward worker."""
    timeout: Annotated[float, NO_NUMBERS] = Field(30.0, gt=0)
    """Seconds for one request."""
    tries: Annotated[int, NO_NUMBERS] = Field(3, ge=1)
    """Answers without a usable score that are paid for one completion, before that is a failure."""

    @model_validator(mode="after")
    def _lower_first(self) -> Self:
        if self.score_range[0] >= self.score_range[1]:
            raise ValueError(f"score_range = {list(self.score_range)}: write the lower one first")
        return self

    @property
    def sends(self) -> str | None:
        if self.api_key_env is None:
            return None
        return f"api_key_env = {self.api_key_env!r} for {self.base_url}"

    @property
    def key_variable(self) -> str | None:
        """Environment variable with the key; None if the endpoint needs none."""
        return self.api_key_env or (OPENAI_KEY if self.base_url.rstrip("/") == OPENAI else None)

    def load(self) -> RewardFunction:
        """Return the environment; raise `ConfigError` if there is no key."""
        environment = import_code(ENVIRONMENT, "rewards.terms")
        made: RewardFunction = environment(**self.model_dump(exclude={"type", "weight", "name"}))
        return made
