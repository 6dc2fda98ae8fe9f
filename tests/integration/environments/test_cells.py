"""environments.processes.cells: processes of episodes, asked at once, rebuilt when lost."""

import os
import resource
import signal
import threading
import time

import pytest

from mortal_steps.environments.messages import ToolCall
from mortal_steps.environments.processes import waiting
from mortal_steps.environments.processes.cell import CellClosedError
from tests.support.chaos.processes import started_by
from tests.support.rewards.processes import assert_ends, is_alive


def test_the_episodes_of_a_problem_share_a_process_and_have_instances_of_their_own(make_shop):
    shop = make_shop()
    opened = shop.open({}, {"target": 9})
    assert [each.prompt[-1]["content"] for each in opened] == ["Shop. Reach 7.", "Shop. Reach 9."]
    answers = shop.call({0: [("add", {"amount": 7})], 1: [("add", {"amount": 1})]})
    assert [answers[episode][0].content for episode in (0, 1)] == ["total 7", "total 1"]
    assert shop.say(0, "pid") == shop.say(1, "pid")
    scores = shop.score([0, 1], "near", "Shop")
    assert scores.by_name == {"near": [0.0, -8.0], "Shop": [1.0, 0.0]}
    assert not scores.failures


def test_episodes_with_cells_of_their_own_do_not_wait_for_each_other(make_shop):
    shop = make_shop(cell="episode")
    shop.open(*[{}] * 4)
    began = time.monotonic()
    answers = shop.call({each: [("wait", {"seconds": 1.5})] for each in range(4)})
    assert time.monotonic() - began < 4 * 1.5
    assert [answers[each][0].content for each in range(4)] == ["waited"] * 4
    assert len({shop.say(each, "pid") for each in range(4)}) == 4
    shop.say(2, "add", amount=7)
    assert shop.score([0, 2, 3], "Shop").by_name == {"Shop": [0.0, 1.0, 0.0]}


def test_a_daemon_that_a_tool_leaves_ends_with_its_cell(make_shop):
    shop = make_shop()
    shop.open({})
    daemon = int(shop.say(0, "daemon"))
    assert is_alive(daemon)
    shop.cells.close()
    assert_ends(daemon)


def test_numbers_that_are_none_come_as_they_are_and_are_the_same_again(make_shop):
    shop = make_shop()
    shop.open({})
    assert repr(shop.say(0, "values")) == "[0.5, nan, 0]"
    shop.kill()
    assert shop.say(0, "add", amount=7) == "total 7", "values() was called again, and compared"


def test_a_shared_process_that_is_stopped_goes_on(make_shop):
    shop = make_shop(timeout_s=10.0, retries=0)
    shop.open({})
    assert shop.say(0, "shared", number=int(signal.SIGSTOP)) == "sent"
    shop.open({}, key="train-8")
    assert shop.say(0, "add", key="train-8", amount=7) == "total 7"


def test_the_end_of_the_shared_process_is_not_charged_to_other_episodes(make_shop):
    shop = make_shop(retries=1)
    keys = [f"train-{number}" for number in range(4)]
    shop.cells.open({key: [shop.start()] for key in keys})
    kill = ToolCall(name="shared", arguments={"number": int(signal.SIGKILL)}, call_id="a/0/0")
    wait = ToolCall(name="wait", arguments={"seconds": 1.0}, call_id="a/0/0")
    asked = {(key, 0): [wait if number else kill] for number, key in enumerate(keys)}
    guilty, *others = shop.cells.call(asked).values()
    assert guilty.reason.startswith("tool shared: its process ended (its host: ")
    assert [answers[0].content for answers in others] == ["waited"] * 3


def test_problems_are_asked_at_once_and_their_processes_end_with_their_scores(make_shop):
    shop = make_shop()
    keys = [f"train-{number}" for number in range(4)]
    shop.cells.open({key: [shop.start()] for key in keys})
    call = ToolCall(name="wait", arguments={"seconds": 1.5}, call_id="a/0/0")
    began = time.monotonic()
    noted = {}
    answers = shop.cells.call({(key, 0): [call] for key in keys}, noted.update)
    assert time.monotonic() - began < 4 * 1.5
    assert list(answers) == [(key, 0) for key in keys]
    assert noted == answers
    pids = {key: int(shop.say(0, "pid", key=key)) for key in keys}
    shop.score([0], "Shop", key=keys[0])
    shop.cells.end(keys[0])
    assert_ends(pids[keys[0]])
    assert [is_alive(pid) for pid in pids.values()] == [False, True, True, True]
    shop.cells.close()
    assert not any(map(is_alive, pids.values()))


def test_seconds_are_counted_by_tool_and_reward(make_shop):
    shop = make_shop()
    shop.open({}, {})
    shop.call({each: [("wait", {"seconds": 0.2}), ("add", {"amount": 1})] for each in (0, 1)})
    assert shop.say(0, "wait_and_see") == "{'error': 'Tool wait_and_see not found.'}"
    shop.score([0, 1], "Shop")
    assert set(shop.cells.seconds) == {"reset", "wait", "add", "Shop"}
    assert 0.4 <= shop.cells.seconds["wait"] < 4.0


def test_a_rebuilt_cell_has_what_all_of_its_episodes_have_done(make_shop):
    shop = make_shop()
    shop.open({}, {})
    shop.say(0, "add", amount=3)
    shop.say(1, "add", amount=4)
    shop.say(0, "look")
    shop.kill()
    assert shop.say(0, "add", amount=1) == "total 4"
    assert shop.say(1, "add", amount=3) == "total 7"
    assert shop.score([0, 1], "Shop", "near").by_name == {"Shop": [0.0, 1.0], "near": [-3.0, 0.0]}


def test_all_cells_are_rebuilt_from_a_new_host_if_theirs_is_killed(make_shop):
    shop = make_shop()
    keys = [f"train-{number}" for number in range(6)]
    shop.cells.open({key: [shop.start(), shop.start()] for key in keys})
    host = shop.cells._host
    for round_number in range(3):
        add = ToolCall(name="add", arguments={"amount": 1}, call_id="a/0/0")
        answers = shop.cells.call({(key, number): [add] for key in keys for number in (0, 1)})
        told = [answer.content for (answer,) in answers.values()]
        assert told == [f"total {round_number + 1}"] * 12
        (process,) = started_by(host._child.pid)
        os.kill(process, signal.SIGKILL)
        host._child.wait()


def test_an_answer_that_differs_in_a_new_process_fails_its_episode_alone(make_shop):
    shop = make_shop()
    shop.open({}, {"at": "add", "fault": "exits"})
    assert shop.say(0, "clock") == "tick 0"
    answers = shop.call({0: [("look", {})], 1: [("add", {"amount": 2})]})
    assert answers[1][0].content == "total 2"
    reason = shop.call({0: [("look", {})]})[0].reason
    for part in ("tool clock", "clock()", "'tick 0'", "'tick 1'"):
        assert part in reason
    assert shop.say(1, "add", amount=5) == "total 7"


def test_the_call_that_differs_is_named_where_async_tools_were_called_before_it(make_shop):
    shop = make_shop()
    shop.open({})
    calls = [("look", {}), ("add", {"amount": 1}), ("clock", {}), ("add", {"amount": 2})]
    answers = shop.call({0: calls})[0]
    assert [each.name for each in answers] == ["add", "clock", "add", "look"]
    shop.kill()
    failed = shop.call({0: [("look", {})]})[0]
    assert failed.is_difference
    assert "clock() gives another answer" in failed.reason


def test_calls_of_tools_that_keep_nothing_are_not_made_again(make_shop):
    shop = make_shop(kind=None)
    shop.open({})
    assert shop.say(0, "visit", folder=shop.folder) == "visit 0"
    assert shop.say(0, "visit_or_end", folder=shop.folder) == "went on"
    assert shop.say(0, "visit", folder=shop.folder) == "visit 1"


def test_an_environment_that_saves_is_brought_back_without_its_calls(make_shop):
    shop = make_shop(factory="SavedShop")
    shop.open({}, {"at": "add", "fault": "exits"})
    shop.say(0, "add", amount=3)
    assert shop.say(0, "clock") == "tick 0"
    assert shop.say(1, "add", amount=2) == "total 2"  # in a new process
    shop.kill()
    assert shop.say(0, "add", amount=4) == "total 7"
    assert shop.say(1, "add", amount=4) == "total 6"
    assert (shop.count("clock"), shop.count("add")) == (1, 5)


def test_what_is_waited_for_is_logged(make_shop, monkeypatch, caplog):
    monkeypatch.setattr(waiting, "LOG_AFTER_S", 1.0)
    shop = make_shop()
    shop.open({}, {}, {})
    shop.call(
        {0: [("add", {"amount": 1})], 1: [("wait", {"seconds": 3.0})], 2: [("look", {})]},
    )
    told = [record.message for record in caplog.records if record.name == waiting.__name__]
    assert len(told) == 2
    for part in ("2 of 3 episodes", "tool wait of train-7, generation 1"):
        assert part in told[0]


def test_what_is_waited_for_is_in_a_file_as_long_as_it_is(make_shop, monkeypatch, tmp_path):
    monkeypatch.setattr(waiting, "TELL_EVERY_S", 0.1)
    shop, step = make_shop(), tmp_path / "steps/000012"
    shop.cells._folder = step / "generations-3-calls"
    shop.open({}, {}, {})
    asked = {0: [("add", {"amount": 1})], 1: [("wait", {"seconds": 3.0})], 2: [("look", {})]}
    calling = threading.Thread(target=shop.call, args=(asked,))
    calling.start()
    deadline = time.monotonic() + 60
    while not (found := waiting.waiting_in(step)) and time.monotonic() < deadline:
        time.sleep(0.01)
    calling.join()
    (shard, told), *_ = found.items()
    assert (shard, told.round, told.num_waiting, told.num_episodes) == ("3", 1, 2, 3)
    assert told.named == "tool wait"
    assert waiting.waiting_in(step) == {}


def test_closing_ends_calls_that_wait(make_shop):
    shop = make_shop()
    shop.open({}, {})
    pid = int(shop.say(0, "pid"))
    raised = []

    def wait():
        with pytest.raises(CellClosedError) as lost:
            shop.say(1, "wait", seconds=15.0)
        raised.append(lost)

    waiting = threading.Thread(target=wait)
    waiting.start()
    time.sleep(0.5)
    began = time.monotonic()
    shop.cells.close()
    waiting.join()
    assert time.monotonic() - began < 10.0
    assert len(raised) == 1
    assert_ends(pid)


@pytest.mark.parametrize("cell", ["problem", "episode"])
def test_no_calls_have_no_answers(make_shop, cell):
    shop = make_shop(cell=cell)
    shop.open({}, {})
    assert shop.call({}) == {}
    assert shop.cells.open({}) == {}


def test_more_cells_than_the_soft_limit_of_open_files_has_room_for(make_shop):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = len(os.listdir("/proc/self/fd")) + 20
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, before[1]))
    try:
        shop = make_shop(
            cell="episode", outages=("builtins:OSError",)
        )  # a host that is not there yet
        opened = shop.open(*[{}] * 16)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert [each.failure for each in opened] == [None] * 16
