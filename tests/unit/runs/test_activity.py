"""What a run does just now: counted by its driver, kept in a file, told in words."""

import asyncio
import logging
from dataclasses import replace

import pytest

from mortal_steps.report.status import told
from mortal_steps.runs.activity import ACTIVITY_FILE, Doing, read_activity, shown_in, write_activity
from mortal_steps.runs.logs import FLOW_LOG, flow_log


def words(doing, seconds=0.0):
    activity = doing.now()
    return told(activity, activity.written_at + seconds)


def test_what_is_under_way_is_told_by_stage_shards_and_step():
    doing = Doing()
    assert words(doing) == ""
    with doing.calling("generate", "generate", 11, of=4):
        assert words(doing) == "generate 0/4 shards of step 12"
    with doing.calling("generate", "generate", 11, of=4), doing.calling("reward", "reward", 11):
        assert words(doing, 40.0) == (
            "generate 1/4 shards of step 12, for 40 s; reward of step 12, for 40 s"
        )
        with doing.calling("train_step", "train_step", 10):
            assert words(doing).endswith("; 1 more")


def test_a_shard_that_waits_to_be_tried_again_is_still_waited_for():
    doing = Doing()
    with pytest.raises(RuntimeError), doing.calling("generate", "generate", 0, of=2):
        raise RuntimeError
    with doing.calling("generate", "generate", 0, of=2):
        pass
    assert words(doing) == "generate 1/2 shards of step 1"
    doing.trained(1, 2.5)
    assert words(doing) == "" and doing.now().pace_s == 2.5


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (("warm_start", "build_base_model", 0), "making the starting model"),
        (("start_workers", "prepare", 3), "starting the workers"),
        (("sync_weights", "sync_weights", 7), "sync_weights of version 7"),
        (("evaluate", "generate", 40), "evaluate after step 40: generate"),
        (("checkpoint", "checkpoint", 50), "checkpoint of step 50"),
        (("save_final", "save_final", 50), "saving the final model"),
    ],
)
def test_stages_that_belong_to_no_single_step_have_words_of_their_own(call, expected):
    doing = Doing()
    with doing.calling(*call):
        assert words(doing) == expected


def test_a_pause_is_all_that_is_told():
    doing = Doing()
    with doing.calling("train_step", "train_step", 0), doing.pausing("the server is away"):
        assert words(doing, 90.0) == "paused: the server is away, for 90 s"
    assert words(doing) == ""


async def test_the_file_follows_and_goes_with_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr("mortal_steps.runs.activity.WRITE_EVERY_S", 0.01)
    doing = Doing()
    async with shown_in(tmp_path, doing):
        with doing.calling("reward", "reward", 4, of=3):
            while not (read := read_activity(tmp_path)) or not read.work:
                await asyncio.sleep(0.01)
            assert replace(read, written_at=0.0) == replace(doing.now(), written_at=0.0)
    assert list(tmp_path.iterdir()) == []


async def test_a_file_that_cannot_be_written_ends_nothing(tmp_path, caplog):
    async with shown_in(tmp_path / "gone", Doing()):
        while "is not written any more" not in caplog.text:
            await asyncio.sleep(0.01)


async def test_a_file_that_cannot_be_removed_hides_no_error(tmp_path):
    (tmp_path / ACTIVITY_FILE).mkdir()
    with pytest.raises(KeyError, match="why the run has failed"):
        async with shown_in(tmp_path, Doing()):
            raise KeyError("why the run has failed")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"work": [{}]}', "\udcff"])
def test_a_file_that_says_nothing_is_none(tmp_path, content):
    assert read_activity(tmp_path) is None
    write_activity(tmp_path, Doing().now())
    assert read_activity(tmp_path) is not None
    (tmp_path / ACTIVITY_FILE).write_bytes(content.encode(errors="surrogateescape"))
    assert read_activity(tmp_path) is None


def test_the_flow_has_a_log_of_its_own(tmp_path, monkeypatch):
    folder = tmp_path / "logs"
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # pytest's cannot take such a line
    with flow_log(folder):
        logging.getLogger("somewhere").warning("a \udcff line")
    logging.getLogger("somewhere").warning("a later line")
    assert (folder / FLOW_LOG).read_text().endswith(" WARNING somewhere: a \\udcff line\n")
    assert logging.getLogger().handlers == []
