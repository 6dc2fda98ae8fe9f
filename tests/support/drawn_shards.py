"""Strategies that draw completions and scores of any content."""

from hypothesis import strategies as st

from mortal_steps.types import (
    Completion,
    Episode,
    GeneratedGroup,
    GeneratedShard,
    Problem,
    RewardedShard,
    RewardFailure,
    Turn,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
ANY_TEXT = st.text(max_size=5)
FLOATS = st.floats(allow_nan=True)
SMALL = st.integers(0, 2**31 - 1)
SEEDS = st.integers(0, 2**63 - 1)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | FLOATS | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=6,
)
OBJECTS = st.dictionaries(ANY_TEXT, JSON, max_size=3)
TURNS = st.builds(
    Turn,
    start=SMALL,
    stop=SMALL,
    seed=SEEDS,
    finish_reason=st.sampled_from(["stop", "length"]),
    round=SMALL,
)

EPISODES = st.builds(
    Episode,
    stop=st.sampled_from(["done", "max_iterations", "length", "failed"]),
    num_calls=SMALL,
    num_failed_calls=SMALL,
    scores=st.dictionaries(ANY_TEXT, st.none() | FLOATS, max_size=2),
    metrics=st.dictionaries(ANY_TEXT, FLOATS, max_size=2),
    extra=OBJECTS,
    failure=st.none() | ANY_TEXT,
)


@st.composite
def completions(draw):
    logprobs = draw(st.lists(FLOATS, max_size=4))
    return Completion(
        token_ids=draw(st.lists(SMALL, min_size=len(logprobs), max_size=len(logprobs))),
        logprobs=logprobs,
        text=draw(TEXT),
        finish_reason=draw(st.sampled_from(["stop", "length"])),
        seed=draw(SEEDS),
        policy_version=draw(SMALL),
        message=draw(st.none() | OBJECTS),
        turns=draw(st.lists(TURNS, max_size=2).map(tuple)),
        messages=draw(st.lists(OBJECTS, max_size=2).map(tuple)),
        prompt_ids=draw(st.none() | st.lists(SMALL, max_size=3)),
        prompt=draw(st.none() | st.lists(OBJECTS, max_size=2)),
        episode=draw(st.none() | EPISODES),
    )


GROUPS = st.builds(
    GeneratedGroup,
    problem=st.builds(
        Problem, id=TEXT, prompt=TEXT | st.lists(OBJECTS, max_size=2), columns=OBJECTS
    ),
    prompt_ids=st.lists(SMALL, max_size=3),
    completions=st.lists(completions(), min_size=1, max_size=3),
)
GENERATED = st.builds(
    GeneratedShard,
    step=SMALL,
    shard=SMALL,
    policy_version=SMALL,
    groups=st.lists(GROUPS, max_size=3),
)


@st.composite
def rewarded(draw):
    names = draw(st.lists(TEXT, max_size=2, unique=True))
    scores = st.fixed_dictionaries({name: st.none() | FLOATS for name in names})
    rewards = draw(st.lists(st.lists(scores, min_size=1, max_size=3), max_size=3))
    size = sum(map(len, rewards))
    plain = st.sampled_from([st.none() | ANY_TEXT, st.booleans(), st.integers(), FLOATS, JSON])
    logged = st.lists(draw(plain), min_size=size, max_size=size)
    return RewardedShard(
        step=draw(SMALL),
        shard=draw(SMALL),
        generation_sha256=draw(TEXT),
        rewards=rewards,
        metrics=draw(st.dictionaries(TEXT, FLOATS, max_size=2)),
        extra=draw(st.dictionaries(TEXT, logged, max_size=2)),
        failures=tuple(
            RewardFailure(
                function=name,
                problem_id="train-0",
                num_completions=2,
                kind="timeout",
                message=draw(ANY_TEXT),
                attempts=3,
            )
            for name in names
        ),
        failed_calls=draw(st.dictionaries(TEXT, SMALL, max_size=2)),
    )
