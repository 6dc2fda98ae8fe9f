"""Runs scripts for TRL's trainers that learn from rows or a teacher: as they are, and with one line
changed.

The process that drives a run is forked off the script's, which has imported TRL before; as an
interpreter of its own it is tested by the scripts of `ported_scripts`.
"""

import json
import os
import pickle
import sys

import pytest
import torch
import trl
from safetensors.torch import load_file

from mortal.terminal.output import warn_in_plain_lines
from mortal.trainer import process
from mortal_steps.policy.starting_model.new_model import build_model
from mortal_steps.runs.run import list_runs
from mortal_steps.schedule import train_seed
from mortal_steps.system.frames import Answer
from tests.support.forked_commands import ForkedCommand
from tests.support.policy.rows import judged, preferences, texts
from tests.support.ported_scripts import IN_TURN, SCRIPTS, SHAPE, as_mortals

CHAT = "{% for m in messages %}{{ m.role[0] }}{{ m.content }}{{ eos_token }}{% endfor %}"
OURS, STOCK = "ours", "stock"
FORKING = """
from mortal.trainer import controls
from tests.support import rows_scripts

controls.perform = rows_scripts.perform_in_a_fork
"""
SEEDED = """
from tests.support import rows_scripts

rows_scripts.seed_as_here()
"""


def chats(count):
    return [
        {
            "messages": [
                {"role": "user", "content": row["text"]},
                {"role": "assistant", "content": row["text"][::-1]},
            ]
        }
        for row in texts(count, seed=3, longest=9)
    ]


DATA = {
    "texts": texts(11),
    "prompts": [{"prompt": row["text"]} for row in texts(8, seed=5, longest=9)],
    "chats": chats(13),
    "preferences": preferences(14),
    "judged": judged(10),
}


@pytest.fixture(scope="module")
def both(request, tmp_path_factory, server):
    """Runs the module's `SCRIPTS` twice, one after the other in a process that has imported TRL
    before. Of each, by its output folder: the run, what it printed, and the folder of stock."""
    folder, scripts = tmp_path_factory.mktemp("scripts"), request.module.SCRIPTS
    build_model(folder / "model", SHAPE, seed=1)
    (folder / "teacher").mkdir()
    build_model(folder / "teacher", SHAPE.model_copy(update={"num_layers": 2}), seed=2)
    with_template(folder / "model")
    for name, rows in DATA.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    sides = {STOCK: (SEEDED, lambda script: script), OURS: (FORKING, as_mortals)}
    for side, (_, changed) in sides.items():
        (folder / side).mkdir()
        for shared in (*folder.glob("*.jsonl"), folder / "model", folder / "teacher"):
            (folder / side / shared.name).symlink_to(shared)
        for name, _ in scripts.values():
            script = changed((SCRIPTS / f"{name}.py").read_text())
            (folder / side / f"{name}.py").write_text(script)
    env = {"PREFECT_API_URL": server.api_url, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    for side, (before, _) in sides.items():
        turns = ["-c", before + IN_TURN, json.dumps(scripts)]
        code = ForkedCommand(turns, cwd=folder / side, env={**os.environ, **env}).wait()
        said = {file.stem: file.read_text() for file in (folder / side).glob("*.out")}
        assert code == 0, said
    return {
        output: (one_run(folder / OURS / output), said[output], folder / STOCK / output)
        for output in scripts
    }


def seed_as_here():
    """Shuffle the rows of a step of distillation, once they are sampled, as a train step does."""

    class Seeded(trl.DistillationTrainer):
        def _generate_single_turn(self, *args, **options):
            sampled = super()._generate_single_turn(*args, **options)
            torch.manual_seed(train_seed(self.args.seed, self.state.global_step))
            return sampled

    Seeded.__name__ = trl.DistillationTrainer.__name__
    trl.DistillationTrainer = Seeded


def perform_in_a_fork(action, **arguments):
    """In place of `owner.perform`."""
    reads, writes = os.pipe()
    forked = os.fork()
    if forked == 0:
        os.close(reads)
        try:
            warn_in_plain_lines()
            answer = Answer(number=0, value=process.perform(action, arguments))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is raised there
            answer = Answer(number=0, error=error)
        with os.fdopen(writes, "wb") as pipe:
            pickle.dump(answer, pipe)
        sys.stdout.flush()
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads, "rb") as pipe:
        answer = pickle.load(pipe)
    os.waitpid(forked, 0)
    if answer.error is not None:
        raise answer.error
    return answer.value


def with_template(folder):
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": CHAT}))


def one_run(folder):
    (run,) = list_runs(folder)
    assert run.is_complete()
    return run


def differing(run, stock):
    """Return the weights of the trained model that are not those of stock TRL, bit for bit."""
    final = run.store.path(run.manifest.final.path)
    (file,) = [file.name for file in final.glob("*model*.safetensors")]
    one, other = load_file(final / file), load_file(stock / file)
    assert one.keys() == other.keys()
    return [name for name in one if not torch.equal(one[name], other[name])]


def printed(stock):
    """Return what the script printed with stock TRL."""
    return stock.with_suffix(".out").read_text()
