"""`_reply`: an environment answers what the model says without a call, as a user."""

import pytest

from mortal_steps.store import RunStore
from mortal_steps.types import GeneratedShard
from tests.support.environments.cases import Case, build
from tests.support.environments.mortal import Workers


def sampled(folder, monkeypatch, **settings):
    monkeypatch.setenv("EFFECTS", str(folder / "effects"))
    case = Case(factory="Talked", functions=("seen",), says="adds", budget=600, **settings)
    workers = Workers(build(case, folder / "model"), folder / "run")
    try:
        generated = workers.sample(0)
        workers.train(workers.score(generated))
    finally:
        workers.close()
    store = RunStore(folder / "run")
    shard = store.read_record(generated.file, GeneratedShard)
    return [made for group in shard.groups for made in group.completions]


def roles(made):
    return [each["role"] for each in made.messages]


def test_a_reply_is_a_message_of_the_user_and_is_not_trained(tmp_path, monkeypatch):
    made = sampled(tmp_path, monkeypatch)
    assert {each.episode.stop for each in made} <= {"done", "length"}
    ended = [each for each in made if each.episode.stop == "done"]
    assert ended
    for each in ended:
        said = [n for n, message in enumerate(each.messages) if message["role"] == "user"]
        (number,) = said
        assert "tool_calls" not in each.messages[number - 1]
        assert each.messages[number]["content"].startswith("You said 'The total is 7.'")
        assert roles(each)[-1] == "assistant" and "tool_calls" not in each.messages[-1]
        assert each.episode.num_calls == roles(each).count("tool")
        assert sum(each.loss_mask) == sum(turn.stop - turn.start for turn in each.turns)
        assert "You said" in each.text and len(each.turns) == roles(each).count("assistant")


@pytest.mark.parametrize(("iterations", "replies"), [(0, 0), (1, 1)])
def test_rounds_of_replies_are_limited_as_those_of_calls(
    tmp_path, monkeypatch, iterations, replies
):
    made = sampled(tmp_path, monkeypatch, iterations=iterations)
    counts = [len(each.messages) - roles(each).count("assistant") for each in made]
    assert max(roles(each).count("user") for each in made) == replies
    assert max(roles(each).count("assistant") for each in made) == iterations + 1
    assert (max(counts) == 0) == (iterations == 0)
    assert {each.episode.stop for each in made} == {"max_iterations"}
