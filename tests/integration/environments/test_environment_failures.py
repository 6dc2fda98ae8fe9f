"""What becomes of an episode whose `reset`, tool or reward fails: it is tried again in a new
process, then masked, or the run stops. It is never scored 0, and the model is told of no outage."""

import pytest

from mortal_steps.environments.processes import attempts
from mortal_steps.environments.processes.cell import Failed
from mortal_steps.errors import EnvironmentFailedError

LOSSES = {
    "hangs": "no answer within 0.5 s",
    "segv": "its process ended (SIGSEGV)",
    "exits": "its process ended (exit code 3)",
    "writes": "wrote into the connection of its process",
}
OUTAGE = {"outage": "nobody answers at port 9"}
RAISED = {"raises": "out of cheese"}
OF_RESET = {**LOSSES, **RAISED, **OUTAGE, "number": "int"}
OF_REWARD = {**LOSSES, **RAISED, **OUTAGE, "nan": "nan", "text": "much"}
ALWAYS = 99


def asked(shop, **row):
    """Return the answers of three episodes to a call each, of which the second has this row."""
    shop.open({}, row, {})
    return shop.call({episode: [("add", {"amount": 7})] for episode in range(3)})


@pytest.mark.parametrize("fault", OF_RESET)
@pytest.mark.parametrize("cell", ["problem", "episode"])
def test_a_reset_that_fails_once_is_made_again(make_shop, fault, cell):
    shop = make_shop(timeout_s=0.5, cell=cell)
    opened = shop.open({}, {"at": "reset", "fault": fault}, {})
    assert [each.failure for each in opened] == [None] * 3
    assert [each.prompt[-1]["content"] for each in opened] == ["Shop. Reach 7."] * 3
    assert shop.say(1, "add", amount=7) == "total 7"
    assert shop.score([0, 1, 2], "Shop").by_name == {"Shop": [0.0, 1.0, 0.0]}


@pytest.mark.parametrize("fault", OF_RESET)
@pytest.mark.parametrize("cell", ["problem", "episode"])
def test_a_reset_that_keeps_failing_costs_its_episode_alone(make_shop, fault, cell):
    shop = make_shop(timeout_s=0.5, retries=1, cell=cell)
    opened = shop.open({}, {"at": "reset", "fault": fault, "times": ALWAYS}, {})
    assert [each.failure is None for each in opened] == [True, False, True]
    assert opened[1].failure.startswith("reset: ")
    assert OF_RESET[fault] in opened[1].failure
    assert shop.say(2, "add", amount=7) == "total 7"
    assert shop.score([0, 2], "Shop").by_name == {"Shop": [0.0, 1.0]}


@pytest.mark.parametrize("fault", {**LOSSES, **OUTAGE})
@pytest.mark.parametrize("at", ["add", "look"])
def test_a_call_that_is_lost_once_is_made_again(make_shop, fault, at):
    shop = make_shop(timeout_s=0.5)
    shop.open({}, {"at": at, "fault": fault}, {})
    before = shop.call({each: [("add", {"amount": each})] for each in range(3)})
    answers = shop.call({each: [("look", {}), ("add", {"amount": 1})] for each in range(3)})
    assert [before[each][0].content for each in range(3)] == ["total 0", "total 1", "total 2"]
    for each in range(3):  # sync ones first, as in TRL
        assert [one.content for one in answers[each]] == [f"total {each + 1}", f"seen {each + 1}"]
    assert shop.score([0, 1, 2], "near").by_name == {"near": [-6.0, -5.0, -4.0]}


@pytest.mark.parametrize("fault", {**LOSSES, **OUTAGE})
def test_a_call_that_keeps_being_lost_costs_its_episode_alone(make_shop, fault):
    shop = make_shop(timeout_s=0.5, retries=1)
    answers = asked(shop, at="add", fault=fault, times=ALWAYS)
    failed = answers[1]
    assert isinstance(failed, Failed)
    assert failed.attempts == 2
    assert failed.reason.startswith("tool add: ")
    assert {**LOSSES, **OUTAGE}[fault] in failed.reason
    assert shop.count("faults") == 2
    assert [answers[each][0].content for each in (0, 2)] == ["total 7"] * 2
    assert shop.score([0, 2], "Shop").by_name == {"Shop": [1.0, 1.0]}


def test_an_episode_whose_thread_ends_the_process_pays_for_it_and_not_the_one_that_was_asked(
    make_shop,
):
    shop = make_shop(retries=1)
    shop.open({}, {}, {}, {})
    answers = shop.call(
        {
            0: [("add", {"amount": 7})],
            1: [("leave", {"seconds": 0.3})],
            2: [("add", {"amount": 7})],
            3: [("wait", {"seconds": 1.5})],
        }
    )
    assert answers[3][0].content == "waited"
    failed = shop.call({1: [("add", {"amount": 7})]})[1]
    assert isinstance(failed, Failed)
    assert failed.reason == "what it leaves running: its process ended (exit code 3)"
    assert shop.score([0, 2, 3], "Shop", "near").by_name == {
        "Shop": [1.0, 1.0, 0.0],
        "near": [0.0, 0.0, -7.0],
    }


@pytest.mark.parametrize("fault", {**LOSSES, **OUTAGE, **RAISED})
def test_a_reply_that_is_lost_is_asked_for_again_and_then_costs_its_episode_alone(make_shop, fault):
    shop = make_shop(timeout_s=0.5, retries=1)
    shop.open({}, {"at": "_reply", "fault": fault, "times": ALWAYS}, {})
    said = [("_reply", {"text": "7 times"})]
    answers = shop.call(dict.fromkeys(range(3), said))
    assert answers[1].reason.startswith("_reply: ")
    assert {**LOSSES, **OUTAGE, **RAISED}[fault] in answers[1].reason
    assert [answers[each][0].content for each in (0, 2)] == ["total 7"] * 2
    (again,) = shop.open({"at": "_reply", "fault": fault, "times": 3}, key="again")
    assert again.failure is None
    assert shop.say(0, "_reply", key="again", text="four") == "total 4"


@pytest.mark.parametrize("at", ["reset", "add"])
def test_an_outage_is_waited_for_as_long_as_attempts_could_hang(make_shop, at, monkeypatch):
    monkeypatch.setattr(attempts, "FIRST_DELAY_S", 0.1)
    shop = make_shop(retries=1)
    answers = asked(shop, at=at, fault="outage", times=5)
    assert shop.count("faults") == 6
    assert [answers[each][0].content for each in range(3)] == ["total 7"] * 3


def test_what_a_tool_raises_is_its_answer(make_shop):
    shop = make_shop()
    answers = asked(shop, at="add", fault="raises", times=ALWAYS)
    assert answers[1][0].is_error
    assert answers[1][0].content == "{'error': 'out of cheese'}"
    assert shop.count("faults") == 1


def test_without_outages_what_a_tool_raises_is_its_answer_whatever_it_is(make_shop):
    shop = make_shop(outages=())
    answers = asked(shop, at="add", fault="outage", times=ALWAYS)
    assert answers[1][0].content == "{'error': 'nobody answers at port 9'}"


@pytest.mark.parametrize("fault", OF_REWARD)
def test_a_reward_that_fails_once_is_asked_again(make_shop, fault):
    shop = make_shop()
    asked(shop, at="get_reward", fault=fault)
    scores = shop.score([0, 1, 2], "near", "Shop", limit_s=0.5)
    assert scores.by_name == {"near": [0.0] * 3, "Shop": [1.0] * 3}
    assert not scores.failures


@pytest.mark.parametrize("fault", OF_REWARD)
@pytest.mark.parametrize("cell", ["problem", "episode"])
def test_an_own_reward_that_keeps_failing_costs_its_episode_alone(make_shop, fault, cell):
    shop = make_shop(retries=1, cell=cell)
    asked(shop, at="get_reward", fault=fault, times=ALWAYS)
    scores = shop.score([0, 1, 2], "Shop", "near", limit_s=1.5, own=["Shop"])
    assert scores.by_name == {"Shop": [1.0, None, 1.0], "near": [0.0, None, 0.0]}
    assert not scores.failures
    failed = [shop.cells.failure_of(("train-7", each)) for each in range(3)]
    assert [each is None for each in failed] == [True, False, True]
    assert OF_REWARD[fault] in failed[1].reason


def test_a_sibling_that_differs_when_the_cell_is_rebuilt_for_scoring_is_not_scored(make_shop):
    shop = make_shop()
    shop.open({}, {}, {"target": 3})
    assert shop.say(1, "clock") == "tick 0"
    shop.call({each: [("add", {"amount": 7})] for each in range(3)})
    shop.kill()
    scores = shop.score([0, 1, 2], "near", "Shop")
    assert scores.by_name == {"near": [0.0, None, -4.0], "Shop": [1.0, None, 0.0]}
    assert shop.cells.failure_of(("train-7", 1)).is_difference


@pytest.mark.parametrize("fault", OF_REWARD)
def test_a_reward_that_keeps_failing_gives_no_score(make_shop, fault):
    shop = make_shop(retries=1)
    asked(shop, at="get_reward", fault=fault, times=ALWAYS)
    scores = shop.score([0, 1, 2], "Shop", limit_s=0.5)
    assert "Shop" not in scores.by_name
    assert OF_REWARD[fault] in scores.failures["Shop"]


@pytest.mark.parametrize(
    ("at", "fault", "parts"),
    [
        ("reset", "raises", ["generation 1", "reset: ", "out of cheese"]),
        (
            "reset",
            "hangs",
            ["generation 1", "reset: ", "0.5 s", "in fail", "timeout_s"],
        ),
        ("add", "hangs", ["generation 1", "tool add: ", "in fail", "environment.timeout_s"]),
        ("add", "segv", ["generation 1", "tool add: ", "SIGSEGV", "in fail"]),
        ("add", "outage", ["generation 1", "tool add: ", "port 9", "environment.outages"]),
        ("get_reward", "raises", ["reward: Shop ", "out of cheese"]),
        ("get_reward", "hangs", ["reward Shop: ", "1.5 s", "in fail"]),
    ],
)
def test_the_run_stops_unless_failures_are_masked(make_shop, at, fault, parts):
    shop = make_shop(timeout_s=0.5, retries=1, on_error="raise")
    with pytest.raises(EnvironmentFailedError) as raised:
        asked(shop, at=at, fault=fault, times=ALWAYS)
        shop.score([0, 1, 2], "Shop", limit_s=1.5)
    for part in ["problem train-7", "2 attempts", 'environment.on_error = "mask"', *parts]:
        assert part in str(raised.value)
