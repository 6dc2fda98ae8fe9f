"""Stages that hold GPUs: those of one recipe, of two recipes on one server, killed ones, and while
the server is away.

What is compared is what the stages write down themselves, as long as they are there.
"""

import os
import signal
import time

import httpx
import pytest

from tests.support.recipe_gpus import Holders, write_recipe

PATIENCE_S = 300.0
LONG_S = 8.0
"""Seconds for which a stage holds a GPU that is killed meanwhile."""


@pytest.fixture
def holders(tmp_path, killable):
    return Holders(tmp_path, killable.api_url, dict(os.environ))


@pytest.fixture
def server_with(killable):
    """Have the server lend so many GPUs."""
    url = f"{killable.api_url}/v2/concurrency_limits/"

    def lends(gpus: int) -> None:
        httpx.post(url, json={"name": "gpus", "limit": gpus}).raise_for_status()

    yield lends
    killable.wait()
    httpx.delete(f"{url}gpus")


def ended(process, code=0):
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == code, said
    return said


def wait_until(condition, process):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def held_by(holders, name):
    """Return the process of a recipe's stage that holds a GPU now, if one does."""
    beats = [beat for beat in holders.beats() if beat["stage"].startswith(f"{name}-")]
    return beats[-1]["pid"] if beats and time.time() - beats[-1]["at"] < 0.5 else None


@pytest.mark.parametrize(
    ("stages", "limits", "at_once"),
    [
        ({"a": 0, "b": 1}, {}, 2),
        ({"a": 0, "b": 1}, {"gpus": 1}, 1),
        ({"a": 0, "b": 0}, {}, 1),
    ],
)
def test_stages_of_a_recipe_share_no_gpu(holders, stages, limits, at_once):
    write_recipe(holders.folder / "one", "one", stages, LONG_S, **limits)
    assert "made a, b" in ended(holders.start("train", "one.toml", of="one"))
    assert len(holders.held()) == 2 and holders.most_at_once() == at_once


@pytest.mark.parametrize(("lent", "at_once"), [(1, 1), (2, 2)])
def test_recipes_of_a_server_hold_no_more_gpus_than_it_lends(holders, server_with, lent, at_once):
    server_with(lent)
    write_recipe(holders.folder / "one", "one", {"a": 0, "b": 1}, LONG_S)
    write_recipe(holders.folder / "two", "two", {"c": 1}, LONG_S)
    both = [holders.start("train", f"{name}.toml", of=name) for name in ("one", "two")]
    for process in both:
        ended(process)
    assert len(holders.held()) == 3 and holders.most_at_once() == at_once


def two_of_which_one_waits(holders):
    """Begin a recipe, and another one once the first holds the GPU; return both."""
    for name in ("one", "two"):
        write_recipe(holders.folder / name, name, {"a": 0}, LONG_S)
    one = holders.start("train", "one.toml", of="one")
    wait_until(lambda: held_by(holders, "one"), one)
    two = holders.start("train", "two.toml", of="two")
    said = ""
    while "waits until the server has 1 of its GPUs free" not in said:
        line = two.stdout.readline()
        assert line, said
        said += line
    assert held_by(holders, "one")
    return one, two


def test_the_gpu_of_a_killed_stage_goes_to_the_next(holders, server_with):
    server_with(1)
    one, two = two_of_which_one_waits(holders)
    os.kill(held_by(holders, "one"), signal.SIGKILL)
    killed = time.time()
    assert "stage a failed" in ended(one, code=1)
    ended(two)
    begun = next(beat["at"] for beat in holders.beats() if beat["stage"].startswith("two-"))
    assert begun - killed < 60
    ended(holders.start("resume", "one", of="one"))
    assert len(holders.held()) == 3 and holders.most_at_once() == 1


def test_a_killed_recipe_that_goes_on_gives_its_gpu_back_first(holders, server_with):
    server_with(1)
    one, two = two_of_which_one_waits(holders)
    one.kill()
    ended(one, code=-signal.SIGKILL)
    began = time.monotonic()
    ended(holders.start("resume", "one", of="one"))
    ended(two)
    assert time.monotonic() - began < 150  # a lease that nobody gives back lasts for six minutes
    assert len(holders.held()) == 3 and holders.most_at_once() == 1


def test_a_server_that_is_away_fails_no_stage_and_lends_no_gpu_twice(
    holders, server_with, killable
):
    """It is away when a stage that holds the GPU ends, while another one waits for it."""
    server_with(1)
    one, two = two_of_which_one_waits(holders)
    killable.kill()
    time.sleep(LONG_S)
    killable.come_back()
    ended(one)
    ended(two)
    assert len(holders.held()) == 2 and holders.most_at_once() == 1
