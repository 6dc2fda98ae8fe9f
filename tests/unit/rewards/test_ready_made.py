"""The kinds of reward that come with MORTAL, but for mathematics."""

from typing import Any

import pytest
from trl.rewards import get_repetition_penalty_reward, get_soft_overlong_punishment

from mortal.rewards import functions
from mortal.rewards.functions import (
    Exact,
    Format,
    Length,
    Overlong,
    Regex,
    Repetition,
    repetition_penalty,
    think_answer_format,
    think_answer_soft,
)
from mortal_steps.config import RewardsConfig
from mortal_steps.errors import RewardError
from mortal_steps.rewards.calling.calls import CallFailure
from mortal_steps.rewards.columns import DatasetRowError
from mortal_steps.rewards.loading import load_reward
from tests.support.refused import refused
from tests.support.rewards.calling import call
from tests.support.rewards.shards import make_shard


def chat(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def score(kind: Any, completions: list[Any], **columns: Any) -> list[float]:
    """What the kind's function says, called as TRL calls one."""
    ids = columns.pop("completion_ids", [[1]] * len(completions))
    scores: list[float] = kind.load()(
        prompts=["?"] * len(completions),
        completions=completions,
        completion_ids=ids,
        trainer_state=None,
        log_extra=None,
        log_metric=None,
        **columns,
    )
    return scores


# --- patterns -------------------------------------------------------------------------------------


def test_a_pattern_is_searched_for_or_has_to_match_the_whole() -> None:
    completions = ["42", " 42\n", "it is 42", chat("42"), "none", ""]
    assert score(Regex(pattern=r"\d+"), completions) == [1, 1, 1, 1, 0, 0]
    assert score(Regex(pattern=r"\d+", whole=True), completions) == [1, 1, 0, 1, 0, 0]
    assert score(Regex(pattern="(?s)a.b", whole=True), ["a\nb"]) == [1]


GOOD = "<think>so</think> <answer>5</answer>"


@pytest.mark.parametrize(
    ("text", "strict", "soft"),
    [
        (GOOD, 1, 1),
        (f"\n{GOOD}\n", 1, 1),
        ("<think>\nso\n</think>\n\n<answer>\n5\n</answer>", 1, 1),
        ("<think></think><answer>5</answer>", 1, 1),
        (f"Well: {GOOD}", 0, 1),
        (f"{GOOD} Bye", 0, 1),
        ("<think>so</think> hence <answer>5</answer>", 0, 1),
        ("<think>an <answer> it is</think><answer>5</answer>", 0, 1),
        ("<think>so</think><answer> </answer>", 0, 1),
        (f"{GOOD}{GOOD}", 0, 1),
        ("<answer>5</answer><think>so</think>", 0, 0),
        ("<think>so</think><answer>5", 0, 0),
        ("<think>so<answer>5</answer></think>", 0, 0),
        ("<think><answer></think>5</answer>", 0, 0),
        ("so</think><answer>5</answer>", 0, 0),
        ("5", 0, 0),
    ],
)
def test_the_format_of_thoughts_and_answer(text: str, strict: float, soft: float) -> None:
    completions = [text, chat(text)]
    assert score(Format(), completions) == think_answer_format(completions) == [strict] * 2
    assert score(Format(strict=False), completions) == think_answer_soft(completions) == [soft] * 2


@pytest.mark.timeout(10, method="signal")  # which ends a match, too; it takes some milliseconds
def test_a_long_answer_without_the_format_is_read_once() -> None:
    text = "<think>a</think><answer>" + "<" * 1_000_000 + "</answer> and more"
    assert think_answer_format([text]) == [0.0]


def test_a_template_that_opens_the_thoughts_is_allowed_for() -> None:
    opened = GOOD.removeprefix("<think>")
    assert score(Format(opened=True), [opened, GOOD]) == [1, 0]
    assert score(Format(opened=True, strict=False), [opened]) == [1]


# --- answers --------------------------------------------------------------------------------------


def test_an_exact_answer_may_differ_in_the_white_space_around_it_alone() -> None:
    completions = ["Paris", " Paris\n", "paris", "Paris.", chat("Paris"), "7", "1.5"]
    golds = ["Paris"] * 5 + [7, 1.5]
    assert score(Exact(), completions, answer=golds) == [1, 1, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("ignore", "equal"),
    [
        ((), []),
        (("case",), ["NEW YORK, ny"]),
        (("space",), ["New  York,\nNY"]),
        (("punctuation",), ["New York NY."]),
        (
            ("case", "space", "punctuation"),
            ["NEW YORK, ny", "New  York,\nNY", "New York NY.", "new  york ny"],
        ),
    ],
)
def test_differences_count_unless_they_are_ignored(ignore: Any, equal: list[str]) -> None:
    others = ["NEW YORK, ny", "New  York,\nNY", "New York NY.", "new  york ny", "New York"]
    scores = score(Exact(ignore=ignore), others, answer=["New York, NY"] * len(others))
    assert [other for other, one in zip(others, scores, strict=True) if one] == equal


def test_punctuation_that_belongs_to_a_number_is_never_ignored() -> None:
    said = ["5", "35", "12", "1000", "5", ".5", "(-5).", "$3.50!", "+5", "1,000."]
    golds = ["-5", "3.5", "1/2", "1,000", ".5", "5", "-5", "3.50", "5", "1,000"]
    scores = score(Exact(ignore=["punctuation"]), said, answer=golds)
    assert scores == [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]
    with refused(DatasetRowError, "'+'", "row 1", "ignore"):
        score(Exact(ignore=["punctuation"]), ["", "..."], answer=["a", "+"])


def test_only_what_stands_in_the_answer_tags_is_compared_on_request() -> None:
    completions = ["<think><answer>6</answer></think><answer> 5 </answer>", "5", "<answer>5"]
    assert score(Exact(judged="answer"), completions, answer=["5"] * 3) == [1, 0, 0]


def test_one_of_several_right_answers_will_do() -> None:
    golds = [["NYC", "New York"]] * 3
    assert score(Exact(), ["NYC", "New York", "York"], answer=golds) == [1, 1, 0]


@pytest.mark.parametrize(
    ("gold", "wrong"),
    [
        (None, "None in row 1 of the call is neither text nor a number"),
        ("", "'' in row 1 of the call is empty"),
        ([], "[] in row 1 of the call is empty"),
        ({"a": 1}, "{'a': 1} in row 1 of the call is neither text nor a number"),
        (["", "a"], "'' in row 1 of the call is empty"),
        (float("nan"), "nan in row 1 of the call is neither"),
        (True, "True in row 1 of the call is neither"),
    ],
)
def test_a_row_without_an_answer_is_the_datasets_fault(gold: Any, wrong: str) -> None:
    with pytest.raises(DatasetRowError) as caught:
        score(Exact(column="gold"), ["a", "b"], gold=["a", gold])
    assert f"column 'gold' = {wrong}" in str(caught.value)
    assert "correct that row" in str(caught.value)


def test_the_failure_names_the_problem_of_the_row() -> None:
    shard = make_shard(("a", "b"), ("c",), columns={"answer": None})
    outcome = call(shard, f=Exact().load())["f"]
    assert isinstance(outcome, CallFailure)
    assert outcome.kind == "invalid"
    assert outcome.message == (
        "cannot use the dataset's column 'answer' = None, which is neither text nor a number"
    )
    assert outcome.remedy == "Correct problem train-0 in the dataset, or leave it out."


def test_a_column_that_is_missing_is_named_with_those_there_are() -> None:
    with refused(RewardError, "'gold'", "answer, prompts") as e:
        call(make_shard(("a",)), f=Exact(column="gold").load())
    assert "trainer_state" not in str(e.value)


# --- length and repetition ------------------------------------------------------------------------


def test_overlong_completions_are_punished_as_in_trl() -> None:
    ids = [[1] * length for length in (0, 50, 79, 80, 81, 90, 99, 100, 101, 500)]
    ours = score(Overlong(max_length=100, buffer=20), ["x"] * len(ids), completion_ids=ids)
    assert ours == get_soft_overlong_punishment(100, 20)(ids)
    assert (ours[3], ours[5], ours[-1]) == (0, -0.5, -1)


def test_repetition_is_punished_as_in_trl() -> None:
    ids = [[], [1], [1, 2, 3], [1] * 50, [1, 2] * 20, list(range(9)), [1, 2, 3, 4, 1, 2, 3]]
    for ngram in (1, 2, 3):
        ours = score(Repetition(ngram=ngram, penalty=-0.5), ["x"] * len(ids), completion_ids=ids)
        assert ours == pytest.approx(get_repetition_penalty_reward(ngram, -0.5)(ids))
    assert repetition_penalty(completion_ids=ids) == get_repetition_penalty_reward()(ids)


def test_repetition_of_words() -> None:
    completions = ["Go on and GO  ON\nand stop", chat("go on"), "one two three"]
    assert score(Repetition(ngram=2, unit="words"), completions) == pytest.approx([-1 / 3, 0, 0])


def test_a_length_near_the_wanted_one_scores_more() -> None:
    ids = [[1] * length for length in (100, 90, 110, 80, 300, 0)]
    texts = ["x"] * 6
    exact, most = Length(target=100, tolerance=20), Length(target=100, tolerance=20, at_most=True)
    assert score(exact, texts, completion_ids=ids) == [1, 0.5, 0.5, 0, 0, 0]
    assert score(most, texts, completion_ids=ids) == [1, 1, 0.5, 1, 0, 1]


def test_the_wanted_length_may_be_a_column_and_count_characters() -> None:
    kind = Length(target="words", tolerance=4, unit="characters")
    assert score(kind, ["abc", chat("abc")], words=[3, 5]) == [1, 0.5]
    for value in (None, "5", -1, True, float("nan")):
        with refused(DatasetRowError, "'words' = ", "row 1"):
            score(kind, ["a", "b"], words=[1, value])


# --- configuration --------------------------------------------------------------------------------


def test_kinds_are_written_by_their_type_and_short_names_work_too() -> None:
    terms = [
        {"type": "overlong", "max_length": 512, "buffer": 128, "weight": 0.5},
        {"type": "regex", "pattern": "a"},
        {"type": "exact", "ignore": ["case"]},
    ]
    config = RewardsConfig(terms=terms)
    assert [term.full_name for term in config.all_terms] == ["overlong", "regex", "exact"]
    assert config.all_terms[0] == Overlong(max_length=512, buffer=128, weight=0.5)
    assert config.code == (), "nothing of the user's"
    for name in functions.__all__:
        if name[0].islower():
            assert load_reward(f"mortal.rewards.functions:{name}") is getattr(functions, name)


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ({"type": "regex", "pattern": "("}, "is no regular expression: missing )"),
        ({"type": "regex"}, "pattern"),
        ({"type": "overlong", "max_length": 8, "buffer": 9}, "buffer = 9 is longer than"),
        ({"type": "exact", "ignore": ["accents"]}, "'case', 'space' or 'punctuation'"),
        ({"type": "exact", "colum": "a"}, "colum"),
        ({"type": "repetition", "penalty": 1.0}, "less than or equal to 0"),
        ({"type": "length", "target": -1, "tolerance": 1}, "target"),
        ({"type": "maths"}, "did you mean 'math'?"),
    ],
)
def test_a_setting_that_is_wrong_is_refused_when_the_configuration_is_read(
    term: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        RewardsConfig(terms=[term])
    assert message in str(caught.value)
