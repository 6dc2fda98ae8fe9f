"""mortal_steps.data: what is held out, what a step gets, what tells datasets apart."""

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from mortal_steps.config import DataConfig
from mortal_steps.data.held_out import eval_set_sizes
from mortal_steps.data.problem_files import dataset_fingerprint
from mortal_steps.data.problems import get_batch, load_problems
from mortal_steps.errors import DataError
from mortal_steps.orchestration.checking.data_lines import warn_of_repeats
from mortal_steps.types import Problem
from tests.support.refused import refused
from tests.support.rows import SPELL, load, prompts, write_lines

# --- what is held out -----------------------------------------------------------------------------


def test_max_samples_takes_the_first_rows(letters: str) -> None:
    assert prompts(load(source=letters, max_samples=2)[0]) == ["p0=", "p1="]


def test_eval_samples_are_held_out_of_the_source(letters: str) -> None:
    train, held_out = load(source=letters, eval_samples=3)
    assert sorted(prompts(train) + prompts(held_out)) == [f"p{i}=" for i in range(10)]
    assert len(held_out) == 3
    assert all(problem.id == f"eval-{problem.columns['answer']}" for problem in held_out)
    assert all(problem.id == f"train-{problem.columns['answer']}" for problem in train)
    # another seed is another run on the same split
    assert load_problems(DataConfig(source=letters, eval_samples=3), 1) == (train, held_out)


def test_held_out_words_are_never_trained_on() -> None:
    train, held_out = load(**SPELL, eval_samples=50)
    assert len(held_out) == 50
    assert not set(prompts(train)) & set(prompts(held_out))
    assert len(train) < 250  # the generator repeats words, and the held-out ones' went with them


def test_an_evaluation_source_may_repeat_training_prompts(letters: str) -> None:
    other = write_lines("eval.jsonl", [{"prompt": "p3="}, {"prompt": "new="}, {"prompt": "p4="}])
    train, held_out = load(source=letters, eval_source=other, eval_samples=2)
    assert prompts(held_out) == ["p3=", "new="]
    assert "p3=" not in prompts(train)
    assert len(train) == 9
    assert len(load(source=letters, eval_source=other)[1]) == 3


def test_several_sets_are_held_out_one_after_the_other(letters: str) -> None:
    easy = write_lines("easy.jsonl", [{"prompt": "p3="}, {"prompt": "a=", "answer": "1"}])
    hard = write_lines("hard.jsonl", [{"prompt": "b="}, {"prompt": "p4="}, {"prompt": "c="}])
    sets = {"easy": easy, "v1.2_hard": hard}
    train, held_out = load(source=letters, eval_sets=sets, eval_samples=2)
    ids = ["eval-easy-0", "eval-easy-1", "eval-v1.2_hard-0", "eval-v1.2_hard-1"]
    assert [problem.id for problem in held_out] == ids
    assert prompts(held_out) == ["p3=", "a=", "b=", "p4="]
    assert {tuple(problem.columns) for problem in held_out} == {("answer",)}
    assert not {"p3=", "p4="} & set(prompts(train))
    assert eval_set_sizes(held_out) == {"easy": 2, "v1.2_hard": 2}
    assert eval_set_sizes(load(source=letters, eval_source=easy)[1]) == {}


def test_a_set_that_cannot_be_read_is_named(letters: str) -> None:
    with refused(DataError, "data.eval_sets.hard = 'no.jsonl'", "no such file"):
        load(source=letters, eval_sets={"hard": "no.jsonl"})
    with refused(ValidationError, "eval_sets"):
        load(source=letters, eval_source="x", eval_sets={"hard": "no.jsonl"})


def test_an_evaluation_split() -> None:
    Path("folder").mkdir()
    write_lines("folder/train.jsonl", [{"prompt": "a"}, {"prompt": "b"}])
    write_lines("folder/test.jsonl", [{"prompt": "b"}])
    train, held_out = load(source="folder", eval_split="test")
    assert (prompts(train), prompts(held_out)) == (["a"], ["b"])


def test_the_same_task_as_evaluation_source_draws_other_rows() -> None:
    train, held_out = load(**SPELL, eval_source=SPELL["source"], eval_samples=20)
    assert len(held_out) == 20
    assert not set(prompts(train)) & set(prompts(held_out))


# --- fingerprint and batches ----------------------------------------------------------------------


@given(st.lists(st.text(min_size=1), min_size=1, max_size=5), st.data())
@settings(max_examples=25)
def test_fingerprint_tells_any_change(texts: list[str], data: st.DataObject) -> None:
    rows = [Problem(id=f"train-{i}", prompt=text) for i, text in enumerate(texts)]
    index = data.draw(st.integers(0, len(rows) - 1))
    changed = [*rows]
    changed[index] = Problem(id=rows[index].id, prompt=rows[index].prompt, columns={"x": 1})
    assert dataset_fingerprint(rows) == dataset_fingerprint(list(rows))
    assert dataset_fingerprint(rows) != dataset_fingerprint(changed)
    assert dataset_fingerprint(rows) != dataset_fingerprint(rows[:-1])


def test_an_epoch_of_batches_is_every_problem_once(letters: str) -> None:
    train, _ = load(source=letters)
    config = DataConfig(source=letters)
    epoch = [
        problem
        for step in range(5)
        for problem in get_batch(train, config, batch_size=2, step=step, seed=3)
    ]
    assert sorted(epoch, key=lambda problem: problem.id) == train
    assert epoch != train
    in_order = get_batch(
        train, DataConfig(source=letters, shuffle=False), batch_size=4, step=1, seed=3
    )
    assert in_order == train[4:8]


def test_a_batch_that_is_larger_than_the_dataset_is_warned_of(caplog: Any) -> None:
    warn_of_repeats(4, 4)
    assert not caplog.messages
    warn_of_repeats(4, 3)
    (said,) = caplog.messages
    assert said.startswith("training.batch_size = 4 is more than the 3 problems there are")
