"""A configuration on several ranks: stock TRL in as many processes, and the actor, which starts the
others itself. Each in processes of their own: torch's world is one a process."""

import contextlib
import json
import os
import pathlib
import pickle
import re
import signal
import socket

import torch
from safetensors.torch import load_file
from torch.distributed.fsdp import fully_shard
from transformers import AutoConfig, AutoModelForCausalLM, Qwen3Config, Qwen3MoeConfig
from trl.trainer import utils

from mortal_steps.policy.algorithms.stepping import stepper  # noqa: F401 - so that forks have it
from mortal_steps.policy.algorithms.stepping.digests import weights_digest
from mortal_steps.policy.model_files.rows import save_pickle
from mortal_steps.policy.model_files.writing import published_tensors, save_model
from mortal_steps.policy.ranks import world
from mortal_steps.policy.ranks.crew import Crew
from mortal_steps.policy.ranks.loading import loading_once
from mortal_steps.policy.ranks.machines import Machines
from mortal_steps.policy.ranks.parts import sums_of_parts
from mortal_steps.policy.ranks.world import join
from mortal_steps.rollout.weight_sync.tensor_digests import tensor_digests
from tests.support.forking.holder import fork_ranks
from tests.support.measured_memory import measure
from tests.support.policy.rollouts import make_batch
from tests.support.policy.runs import make_run
from tests.support.policy.stock import Outcome, Recorder, run_stock
from tests.support.training_forks import training_forks

PROCESSES = training_forks()
PATIENCE_S = 300
WENT_ON = 3
"""Exit code of an actor that should have ended by itself."""


def stock_on_ranks(config, model_path, folder, num_steps):
    """Return what rank 0 of stock TRL has in the end."""
    count = config.training.ranks
    folder.mkdir(parents=True)
    arguments = (count, config, model_path, folder, num_steps)
    ranks = [
        PROCESSES.Process(target=_stock, args=(number, *arguments), daemon=True)
        for number in range(count)
    ]
    _finish(ranks)
    return pickle.loads((folder / "outcome").read_bytes())


def _finish(ranks):
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(PATIENCE_S)
        assert each.exitcode == 0


def measured_on_ranks(model_path, folder, **options):
    """Return the configuration, and the memory of rank 0, of a model dealt out to two ranks."""
    folder.mkdir(parents=True)
    ranks = [
        PROCESSES.Process(target=_measured, args=(number, model_path, folder, options), daemon=True)
        for number in range(2)
    ]
    _finish(ranks)
    return pickle.loads((folder / "measured").read_bytes())


def _measured(number, model_path, folder, options):
    join(number, 2, folder / "meeting", 60, shards=True)
    vocabulary = AutoConfig.from_pretrained(model_path).vocab_size
    utils._CHUNKED_LOGPROB_CHUNK_SIZE = vocabulary
    measured = measure(model_path, folder / str(number), ranks=2, sharding="full", **options)
    if number == 0:
        (folder / "measured").write_bytes(pickle.dumps(measured))


def _stock(number, count, config, model_path, folder, num_steps):
    shards = config.training.sharding == "full"
    join(number, count, folder / "meeting", 60, shards=shards)
    batches = [make_batch(config, step) for step in range(num_steps)]
    outcome = run_stock(config, model_path, folder / str(number), batches)
    if number == 0:
        (folder / "outcome").write_bytes(pickle.dumps(outcome))


def mortal_on_ranks(config, model_path, folder, num_steps, *, forks=False):
    """Return what the actor has in the end; its run is in `folder`."""
    process = begin_mortal(config, model_path, folder, num_steps, forks=forks)
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    return pickle.loads((folder / "outcome").read_bytes())


def restored_on_ranks(config, model_path, folder, checkpoint):
    """Return the digests of a checkpoint's state as the configuration's ranks restore it."""
    process = PROCESSES.Process(target=_restored, args=(config, model_path, folder, checkpoint))
    process.start()
    process.join(PATIENCE_S)
    assert process.exitcode == 0
    return json.loads((folder / "digests").read_text())


def _restored(config, model_path, folder, checkpoint):
    actor = make_run(folder / "run", config, model_path, num_steps=2).actor()
    ranks = actor._make_stepper(False)
    ranks.begin(checkpoint)
    (folder / "digests").write_text(json.dumps(ranks.digests()))


def begin_mortal(config, model_path, folder, num_steps, first=0, *, forks=False):
    """Begin an actor that trains from step `first` on, and saves the state after every second. It
    may fork its other ranks."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = (config, model_path, folder, num_steps, first, forks)
    process = PROCESSES.Process(target=_mortal, args=arguments)
    process.start()
    return process


def _mortal(config, model_path, folder, num_steps, first, forks):
    if forks:
        fork_ranks()
    run = make_run(folder / "run", config, model_path, num_steps=num_steps)
    actor, recorder = run.actor(), Recorder()
    actor.prepare(step=first)
    ranks, shards = actor._states.state.stepper, config.training.sharding == "full"
    if not shards:
        ranks.trainer.add_callback(recorder)
    results, begun = [], 0
    for step in range(first, num_steps):
        results += run.train(actor, [step])
        if begun:
            actor.checkpoint(step=begun, best_score=None)
            begun = 0
        if shards:
            recorder.weights.append(whole(ranks, folder / f"whole-{step}"))
        if (step + 1) % 2 == 0:
            begun = step + 1
            assert actor.begin_checkpoint(step=begun) is None
    actor.checkpoint(step=num_steps, best_score=None)
    outcome = Outcome(weights=recorder.weights, metrics=[each.metrics for each in results])
    (folder / "outcome").write_bytes(pickle.dumps(outcome))


def load_on_ranks(model_path, count=2):
    """Load a model in bfloat16 on ranks that share its memory. Returns what each has in the end."""
    pairs = [socket.socketpair() for _ in range(1, count)]
    ends = [[ours for ours, _ in pairs], *([theirs] for _, theirs in pairs)]
    answers = PROCESSES.Queue()
    for number, connections in enumerate(ends):
        arguments = (number, count, connections, model_path, answers)
        PROCESSES.Process(target=_load, args=arguments, daemon=True).start()
    found = dict(answers.get(timeout=PATIENCE_S) for _ in ends)
    return [found[number] for number in range(count)]


def _load(number, count, connections, model_path, answers):
    world._joined = (number, count)
    world.neighbours.extend(connections)
    before = _own_bytes()
    with loading_once():
        model = AutoModelForCausalLM.from_pretrained(model_path, dtype=torch.bfloat16)
    own_bytes = _own_bytes() - before
    tensors = [*model.named_parameters(remove_duplicate=False), *model.named_buffers()]
    is_tied = model.lm_head.weight is model.model.embed_tokens.weight
    answers.put((number, (own_bytes, is_tied, tensor_digests(tensors))))


def _own_bytes():
    """Memory of this process that it shares with no other and that is no file's."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


SHAPE = {
    "vocab_size": 50,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 32,
}
SHAPES = {
    "tied": Qwen3Config(**SHAPE, tie_word_embeddings=True),
    "experts": Qwen3MoeConfig(**SHAPE, num_experts=4, moe_intermediate_size=32),
}


def write_on_ranks(folder, count=3, *, apart=False):
    """Write models and a state to `<shape>/one`, and dealt out to ranks to `<shape>/many`. Their
    digests are compared there. `apart`, each rank is on a machine with a disk of its own."""
    arguments = [(number, count, folder, apart) for number in range(count)]
    ranks = [PROCESSES.Process(target=_write, args=each, daemon=True) for each in arguments]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(PATIENCE_S)
        assert each.exitcode == 0


def _write(number, count, folder, apart):
    if apart:
        here = Machines(addresses=("127.78.0.1",) * count, number=number)
        os.environ.update(here.environment())
        folder = folder / f"disk-{number}"
        folder.mkdir()
    join(number, count, folder / "meeting", 60)
    for kind, shape in SHAPES.items():
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(shape, dtype=torch.float32)
        found = [_written(model, folder / kind / "one")] if number == 0 else []
        fully_shard(model)
        found.append(_written(model, folder / kind / "many"))
        assert found[0] == found[-1] or number


def _written(model, folder):
    folder.mkdir(parents=True, exist_ok=True)
    save_model(model, folder, torch.bfloat16)
    save_pickle(folder / "state.pt", {"state": [dict(model.state_dict()), 3]})
    published = published_tensors(model)
    return weights_digest(model), tensor_digests(published.items(), sums_of_parts)


def failing_mortal(config, model_path, folder):
    """Return what an actor answers whose first rank alone has no memory left, and how its process
    ends at the next call."""
    process = PROCESSES.Process(target=_failing, args=(config, model_path, folder))
    process.start()
    process.join(PATIENCE_S)
    return (folder / "answer").read_text(), process.exitcode


def _failing(config, model_path, folder):
    run = make_run(folder / "run", config, model_path, num_steps=2)
    actor = run.actor()
    actor.prepare(step=0)

    def fail(rows):
        raise torch.OutOfMemoryError("CUDA out of memory, as a test has it")

    actor._states.state.stepper.trainer.update = fail
    try:
        run.train(actor, [0])
    except torch.OutOfMemoryError as error:
        (folder / "answer").write_text(str(error))
    with contextlib.suppress(Exception):
        run.train(actor, [0])
    os._exit(WENT_ON)


def whole(ranks, folder):
    """The trained weights of a model that is dealt out, as it publishes them."""
    folder.mkdir()
    ranks.export_weights(folder)
    (file,) = folder.glob("*.safetensors")
    return {re.sub("(lora_[AB])", r"\1.default", name): x for name, x in load_file(file).items()}


def ordering_a_stopped_rank():
    """Return how a process ends that gives an order to a rank which has been stopped."""
    process = PROCESSES.Process(target=_ordering)
    process.start()
    process.join(PATIENCE_S)
    process.kill()
    process.join()
    return process.exitcode


def _ordering():
    crew = Crew(2, 3.0, "none")
    (follower,) = followers_of(os.getpid())
    os.kill(follower, signal.SIGSTOP)
    rows = "more than a connection holds" * 1_000_000
    crew.together("train_step", {"args": [rows], "kwargs": {}}, lambda: os._exit(WENT_ON))


def followers_of(leader):
    """The pids of the ranks that the process has started."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            command = (entry / "cmdline").read_bytes().split(b"\0")
            is_started = b"mortal_steps.policy.ranks.follower" in command and command[1] == b"-P"
            if is_started or (entry / "comm").read_text() == "follower\n":
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                supervisor = pathlib.Path("/proc", str(parent), "stat").read_text()
                if int(supervisor.rpartition(")")[2].split()[1]) == leader:
                    found.append(int(entry.name))
    return found
