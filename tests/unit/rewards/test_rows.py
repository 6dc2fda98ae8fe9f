"""mortal_steps.rewards.calling.rows: each completion has its row to itself, as in TRL."""

import copy
import json
from typing import Any

import pytest

from mortal_steps.rewards.calling.calls import arguments_of
from mortal_steps.rewards.calling.rows import with_own_rows
from mortal_steps.rewards.environments import RewardEnvironment
from tests.support.rewards import changing
from tests.support.rewards.calling import STATE
from tests.support.rewards.shards import CHAT, make_shard

ROW = {
    "numbers": [1, 2, 3],
    "facts": {"seen": [{"by": ["him"], "at": None}], "name": "a", "deep": [[1.5], [[True]]]},
    "tests": [["in", "out"]] * 2,
    "nothing": [],
    "level": 3,
}


def arguments(**row: Any) -> dict[str, Any]:
    columns = json.loads(json.dumps(row or ROW))
    shard = make_shard(("ba", "b", "", "bab"), ("b", "a"), prompt=CHAT, columns=columns)
    return dict(arguments_of(copy.deepcopy(shard).groups, STATE).by_name)


def parts_of(value: Any) -> list[int]:
    """Return the ids of a value and of all lists and tables in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ids = [each for item in inner for each in parts_of(item)]
    return [id(value), *ids] if isinstance(value, list | dict) else ids


def test_no_two_completions_share_anything_that_can_be_changed() -> None:
    given = arguments()
    before = copy.deepcopy(given)
    own = with_own_rows(given)
    assert own == before
    found = [number for held in own.values() if isinstance(held, list) for number in parts_of(held)]
    assert len(found) == len(set(found)) > 6 * 8


def test_texts_and_numbers_are_not_copied() -> None:
    long = "x" * 1000
    own = with_own_rows(arguments(text=long, facts={"text": long}))
    assert len({id(each) for each in own["text"]}) == 1
    assert len({id(each["text"]) for each in own["facts"]}) == 1


def test_values_of_other_types_are_copied_as_well() -> None:
    shared = {"a": {1, 2}, "b": ([1],)}
    own = with_own_rows({"column": [shared, shared], "trainer_state": STATE})
    first, second = own["column"]
    first["a"].add(3)
    first["b"][0].append(2)
    assert second == {"a": {1, 2}, "b": ([1],)} and own["trainer_state"] is STATE


@pytest.mark.parametrize("name", ["judged", "countdown", "nested"])
def test_trl_gives_the_same_scores(name: str, model_path: str, tmp_path: Any) -> None:
    """The real GRPOTrainer, one step, with functions that change their rows."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    function = getattr(changing, name)
    trl: list[list[float]] = []

    def record(**kwargs: Any) -> list[float]:
        trl.append(function(**kwargs))
        return trl[-1]

    row = {"numbers": [1, 2, 3], "facts": {"seen": [{"by": ["him"]}]}}
    args = GRPOConfig(
        output_dir=str(tmp_path),
        max_steps=1,
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=4,
        use_cpu=True,
        bf16=False,
        report_to="none",
        save_strategy="no",
    )
    rows = Dataset.from_list([{"prompt": CHAT, **row}] * 2)
    GRPOTrainer(model=model_path, args=args, reward_funcs=record, train_dataset=rows).train()
    right = {"judged": 2.0, "countdown": 3.0, "nested": 1.0}[name]
    assert trl == [[right] * 4]
    assert function(**with_own_rows(arguments(**row))) == [right] * 6


def test_threads_of_an_environment_do_not_change_the_rows_of_each_other() -> None:
    class UsesUp(RewardEnvironment):
        def score(self, completion: str, prompt: str, **row: Any) -> float:
            row["numbers"].pop()
            return float(len(row["numbers"]))

    own = with_own_rows(arguments())
    assert UsesUp()(**own) == [2.0] * 6
