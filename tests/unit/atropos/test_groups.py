"""Groups of Atropos' environments: what is refused, and what is trained on."""

import math

import pytest

from mortal_steps.atropos.groups import read_group, sequences_of
from mortal_steps.errors import BatchSourceError
from tests.support.atropos.groups import make_group

LONGEST = 16


def sequences(**changed):
    return sequences_of(read_group(make_group(0, **changed), max_length=LONGEST))


def test_advantages_are_scores_over_the_population_deviation():
    scores = [1.0, 0.0, 0.5, 0.0]
    mean = sum(scores) / 4
    deviation = math.sqrt(sum((score - mean) ** 2 for score in scores) / 4)
    found = [each.advantages[0] for each in sequences(scores=scores)]
    assert found == pytest.approx([(score - mean) / deviation for score in scores])
    assert all(len(set(each.advantages)) == 1 for each in sequences(scores=scores))


def test_equal_scores_have_no_advantage_and_a_single_score_is_its_own():
    assert [each.advantages[0] for each in sequences(scores=[0.7] * 4)] == pytest.approx([0.0] * 4)
    alone = sequences_of(read_group(make_group(1, size=1, scores=[0.7]), max_length=LONGEST))
    assert set(alone[0].advantages) == {0.7}


def test_advantages_of_tokens_go_before_scores_and_can_be_set_to_zero():
    lengths = [len(tokens) for tokens in make_group(0)["tokens"]]
    given = [[float(place) for place in range(length)] for length in lengths]
    overrides = [{}, {"set_advantage_to_zero": True}, {}, {"set_advantage_to_zero": False}]
    found = [each.advantages for each in sequences(advantages=given, overrides=overrides)]
    assert found == [given[0], [0.0] * lengths[1], given[2], given[3]]


def test_of_four_temperatures_the_nearest_to_the_sequence_counts():
    levels = {"group_overrides": {"temperature": 0.3}}
    assert {each.temperature for each in sequences()} == {1.0}
    assert {each.temperature for each in sequences(**levels)} == {0.3}
    levels["generation_params"] = {"temperature": 0.6, "max_new_tokens": 5}
    assert {each.temperature for each in sequences(**levels)} == {0.6}
    levels["overrides"] = [{"temperature": 0.9}, {}, {}, {}]
    assert [each.temperature for each in sequences(**levels)] == [0.9, 0.6, 0.6, 0.6]


def test_masked_tokens_are_not_trained_on_and_their_logprobs_do_not_count():
    given = make_group(0)
    for number, each in enumerate(sequences()):
        assert each.trained == [mask != -100 for mask in given["masks"][number]]
        assert each.logprobs[:3] == [0.0] * 3
        assert each.logprobs[3:] == given["inference_logprobs"][number][3:]
    assert sequences(inference_logprobs=None)[0].logprobs is None
    unmasked = sequences(masks=given["tokens"], inference_logprobs=None)
    assert not unmasked[0].trained[0]  # nothing precedes the first
    assert all(unmasked[0].trained[1:])


BASE = make_group(0)
BROKEN = {
    "no scores for all": ({"scores": [1.0]}, r"scores has 1 entries for 4"),
    "NaN": ({"scores": [1.0, math.nan, 0.0, 0.0]}, r"scores\.1: .*finite"),
    "null": ({"scores": [1.0, None, 0.0, 0.0]}, r"scores\.1: .*number"),
    "short masks": ({"masks": [row[1:] for row in BASE["masks"]]}, r"sequence 0: masks has"),
    "strange mask": ({"masks": [[2] * len(row) for row in BASE["tokens"]]}, r"a mask is 2,"),
    "short logprobs": ({"inference_logprobs": [[]] * 4}, r"inference_logprobs has 0 values"),
    "logprob above 0": (
        {"inference_logprobs": [[1.0] * len(row) for row in BASE["tokens"]]},
        r"log-probability 1\.0, above 0",
    ),
    "a placeholder": (
        {"inference_logprobs": [[-9999.0] * len(row) for row in BASE["tokens"]]},
        r"sequence 0: .*log-probability -9999\.0, below -50",
    ),
    "huge score": ({"scores": [1e200, 0.0, 0.0, 0.0]}, r"score 1e\+200"),
    "huge advantage": (
        {"advantages": [[-1e9] * len(row) for row in BASE["tokens"]]},
        r"sequence 0: an advantage is -1e\+09",
    ),
    "long advantages": ({"advantages": [[0.0] * 99] * 4}, r"advantages has 99 values"),
    "temperature 0": ({"group_overrides": {"temperature": 0}}, r"temperature = 0 "),
    "one token": (
        {"tokens": [[5]] * 4, "masks": [[5]] * 4, "inference_logprobs": None},
        r"has 1 tokens; the trainer takes 2 to 16",
    ),
    "nothing": (
        {"tokens": [], "masks": [], "scores": [], "inference_logprobs": None},
        r"no sequences",
    ),
}


@pytest.mark.parametrize("changed, said", BROKEN.values(), ids=BROKEN.keys())
def test_what_cannot_be_trained_on_is_refused(changed, said):
    with pytest.raises(BatchSourceError, match=said) as refused:
        sequences(**changed)
    assert "a group of environment 0" in str(refused.value)


def test_tokens_of_another_tokenizer_are_refused():
    group = make_group(0)
    largest = max(max(tokens) for tokens in group["tokens"])
    read_group(group, max_length=LONGEST, vocabulary=largest + 1)
    with pytest.raises(BatchSourceError, match=rf"token {largest}, .*tokenizer of another model"):
        read_group(group, max_length=LONGEST, vocabulary=largest)
