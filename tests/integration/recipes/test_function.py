"""A function of the user's as a stage: called in a process of its own, for a folder."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mortal_steps.errors import ConfigError, DataError, FunctionError, WorkerLostError
from mortal_steps.recipes.kinds.function import FunctionStage
from mortal_steps.recipes.products import verify
from tests.support.recipes import Nothing, job_of, make

CODE = """
import os, signal, time
from pathlib import Path

def copy(model: Path, out: Path, times: int = 1):
    print("copying", model)
    Path("calls.txt").open("a").write("x")
    text = (model / "weights.txt").read_text()
    (out / "rows.jsonl").write_text(f'{{"prompt": "{text * times}"}}\\n')
    return {"length": len(text), "name": "not a number"}

async def later(out):
    (out / "a.txt").write_text("a")

def fails(out):
    print("about to fail")
    raise ValueError("no such letter")

def dies(out):
    print("about to die")
    os.kill(os.getpid(), signal.SIGKILL)

def nothing(out):
    pass

def sees(out):
    (out / "seen.txt").write_text(os.environ["CUDA_VISIBLE_DEVICES"])

def waits(out):
    Path("waiting.txt").write_text(str(os.getpid()))
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(CODE)
    Path("runs/sft").mkdir(parents=True)
    Path("runs/sft/weights.txt").write_text("abc")


def stage(function, **values):
    return FunctionStage("own", {"call": f"own.py:{function}", **values}, "letters")


def test_a_function_is_called_once_with_paths_and_its_file_is_a_dataset():
    copy = stage("copy", model="stage:sft", times=2, output="rows.jsonl")
    job = job_of(copy, sft="sft")
    copy.check(Nothing(), lambda line: None)
    assert copy.product(job) is None
    made = make(copy, job)
    rows = job.runs_dir / made.outputs[""].path
    assert rows.read_text() == '{"prompt": "abcabc"}\n'
    assert made.outputs[""].kind == "dataset"
    assert made.outputs["folder"].kind == "folder"
    for output in made.outputs.values():
        verify(job.runs_dir, output)
    assert made.metrics == {"length": 3.0}
    assert f"copying {Path('runs/sft').absolute()}" in (job.folder / "function.log").read_text()
    assert make(stage("copy", model="stage:sft", times=2, output="rows.jsonl"), job) == made
    assert Path("calls.txt").read_text() == "x"


def test_a_coroutine_is_awaited():
    later = stage("later")
    job = job_of(later)
    assert make(later, job).outputs[""].kind == "folder"
    assert (job.folder / "out" / "a.txt").read_text() == "a"


def test_a_function_sees_the_gpus_that_it_names():
    sees = stage("sees", devices="1")
    job = job_of(sees)
    make(sees, job)
    assert (job.folder / "out" / "seen.txt").read_text() == "1"


@pytest.mark.parametrize(
    ("function", "error", "message"),
    [
        ("fails", FunctionError, r"raised ValueError: no such letter\n.*own\.py.*in fails"),
        ("dies", WorkerLostError, r"was lost \(SIGKILL\).*about to die"),
        ("nothing", DataError, "has written nothing to the folder"),
    ],
)
def test_what_becomes_of_a_call_is_told(function, error, message):
    with pytest.raises(error, match=f"(?s)stages.own: .*{message}"):
        make(stage(function))


@pytest.mark.parametrize(
    ("function", "values", "message"),
    [
        ("copi", {}, r"did you mean copy\?"),
        ("copy", {}, r"stages\.own\.model is not set"),
        ("copy", {"model": "stage:sft", "tmes": 2}, r"did you mean times\?"),
    ],
)
def test_before_anything_runs_a_wrong_call_is_refused(function, values, message):
    with pytest.raises(ConfigError, match=message):
        stage(function, **values).check(Nothing(), lambda line: None)


MAKING = """
from mortal_steps.recipes.kinds.function import FunctionStage
from tests.support.recipes import make
make(FunctionStage("own", {"call": "own.py:waits"}, "letters"))
"""


def test_the_process_of_a_function_ends_with_its_owner():
    root = Path(__file__).parents[3]
    owner = subprocess.Popen([sys.executable, "-c", MAKING], env={**os.environ, "PYTHONPATH": root})
    waiting = Path("waiting.txt")
    for _ in range(1200):
        if waiting.exists() and waiting.read_text():
            break
        time.sleep(0.05)
    called = int(waiting.read_text())
    owner.send_signal(signal.SIGKILL)
    owner.wait()
    for _ in range(1200):
        if not Path(f"/proc/{called}").exists():
            return
        time.sleep(0.05)
    raise AssertionError("it goes on without its owner")
