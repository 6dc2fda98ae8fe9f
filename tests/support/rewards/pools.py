"""Reward functions that have processes of their own, and a file that is edited meanwhile."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path


def size(text):
    return float(len(text))


class Sizes:
    @staticmethod
    def one(text):
        return float(len(text))


def in_pool(kind, function, texts):
    with multiprocessing.get_context(kind).Pool(2) as pool:
        return pool.map(function, texts)


def spawned(completions, **kwargs):
    return in_pool("spawn", size, completions)


def of_a_fork_server(completions, **kwargs):
    return in_pool("forkserver", Sizes.one, completions)


def executed_after_an_edit(completions, **kwargs):
    path = Path(__file__)
    if path.name == "edited.py":
        path.write_text(path.read_text().replace("len(text)", "-len(text)"))
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(size, completions))


def cannot_be_sent(completions, **kwargs):
    def inner(text):
        return 0.0

    return in_pool("fork", inner, completions)


def ends(text):
    raise SystemExit("no such board")


def waits_for_ever(completions, **kwargs):
    with multiprocessing.get_context("fork").Pool(1, initializer=ends, initargs=("",)) as pool:
        return pool.map(size, completions, chunksize=1)
