"""What each rank has in memory while they publish and save a model that is dealt out to them.

    python -m benchmarks.saving.ranks --ranks 4
    python -m benchmarks.saving.ranks --shape 1.5B --optim sgd

The model has random weights and the shape of a Qwen2, in float32. Its one train step computes no
gradients: they are all 1, since only what becomes of the state is of interest. With 0.5B and Adam
that takes 12 GB, with `--optim sgd`, which keeps no state, 8 GB. Memory is what a process shares
with no other and what is no file's (RssAnon), seen every 5 ms.
"""

import argparse
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from benchmarks.jobs import ROOT
from benchmarks.output import command_line, console, folder_for, results_table, write_results
from benchmarks.weights.shapes import build
from mortal_steps.policy.algorithms.grpo import GRPO
from mortal_steps.policy.algorithms.trl_hooks import TrainerClass

BYTES_A_PARAMETER = {"adamw_torch": 12, "sgd": 4}
"""Of a weight and what the optimizer keeps."""
SIZES = {"0.5B": 0.5, "1.5B": 1.5}
EVERY_S = 0.005
WRITING = ("publish", "save", "save beside training")
ADDED_LIMIT = 1e9
"""Bytes beyond what it has that rank 0 may need to write."""


class NoForward(GRPO, extra="forbid"):
    """GRPO without forward and backward passes."""

    type: str = "benchmarks.saving.ranks:NoForward"
    trl_config: ClassVar[str] = "GRPOConfig"

    def trainer_class(self) -> TrainerClass:
        import torch
        from trl import GRPOTrainer

        class WithoutForward(GRPOTrainer):
            def training_step(self, model: Any, *_: Any) -> torch.Tensor:
                for parameter in model.parameters():
                    parameter.grad = torch.ones_like(parameter)
                return torch.zeros(())

        return WithoutForward


@dataclass(frozen=True, kw_only=True, slots=True)
class Phase:
    """Something that ranks did together. Bytes of each rank, rank 0 first."""

    name: str
    seconds: float
    before: tuple[int, ...]
    most: tuple[int, ...]


def main() -> None:
    args = _parse()
    os.chdir(ROOT)
    os.environ["PYTHONPATH"] = str(ROOT)
    with folder_for("ranks", within=args.dir) as folder:
        model, _ = build(SIZES[args.shape], folder / "model")
        num_parameters = model.num_parameters()
        del model  # from the memory of rank 0, which is this process
        phases = _measure(folder / "run", str(folder / "model"), args.ranks, args.optim)
    share = BYTES_A_PARAMETER[args.optim] * num_parameters // args.ranks
    _print_report(phases, share)
    measured = {"ranks": args.ranks, "shape": args.shape, "optim": args.optim}
    write_results(args.output, {**measured, "share": share, "phases": phases})
    writing = [phase for phase in phases if phase.name in WRITING]
    if max(phase.most[0] - phase.before[0] for phase in writing) > ADDED_LIMIT:
        raise SystemExit(f"rank 0 needs more than {ADDED_LIMIT / 1e9:g} GB beyond what it has")


def _parse() -> argparse.Namespace:
    parser = command_line("saving.ranks", __doc__)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--shape", choices=SIZES, default="0.5B")
    parser.add_argument("--optim", choices=BYTES_A_PARAMETER, default="adamw_torch")
    parser.add_argument("--dir", type=Path, help="where the run lies; default: temporary folder")
    return parser.parse_args()


def _measure(run_dir: Path, model: str, num_ranks: int, optim: str) -> list[Phase]:
    from tests.support.policy.ranks import followers_of
    from tests.support.policy.rollouts import make_config
    from tests.support.policy.runs import make_run

    algorithm = {"type": "benchmarks.saving.ranks:NoForward"}
    config = make_config(
        ranks=num_ranks, sharding="full", algorithm=algorithm, trl={"optim": optim}
    )
    run = make_run(run_dir, config, model, num_steps=1)
    actor, phases = run.actor(), list[Phase]()

    def take(name: str, work: Callable[[], Any]) -> None:
        with _watching(lambda: [os.getpid(), *sorted(followers_of(os.getpid()))]) as seen:
            began = time.perf_counter()
            work()
            seconds = time.perf_counter() - began
        before, most = tuple(seen[0]), tuple(map(max, zip(*seen, strict=True)))
        phases.append(Phase(name=name, seconds=seconds, before=before, most=most))
        console.print(f"{name}: {seconds:.1f} s")

    actor.prepare(step=0, publish=False)
    run.train(actor, [0])  # it publishes, too
    stepper, folders = actor._states.state.stepper, [run_dir / name for name in ("v", "c")]
    for folder in folders:
        folder.mkdir()
    take("weights digest", stepper.weights_digest)
    take("score the probe", lambda: stepper.score(list(range(5, 70))))
    take(WRITING[0], lambda: (stepper.export_weights(folders[0]), stepper.published_digests()))
    take(WRITING[1], lambda: (stepper.save_state(folders[1]), stepper.digests()))
    take("copy, to save beside training", lambda: actor.begin_checkpoint(step=1))
    take(WRITING[2], lambda: actor.checkpoint(step=1, best_score=None))
    return phases


@contextmanager
def _watching(pids_of: Callable[[], Sequence[int]]) -> Iterator[list[list[int]]]:
    """Yield what is seen of the memory of these processes, in bytes."""
    pids, ended = pids_of(), threading.Event()
    seen = [[_own_bytes(pid) for pid in pids]]

    def watch() -> None:
        while not ended.wait(EVERY_S):
            seen.append([_own_bytes(pid) for pid in pids])

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()


def _own_bytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return 1024 * int(status.partition("RssAnon:")[2].split()[0])


def _print_report(phases: Sequence[Phase], share: int) -> None:
    title = f"GB of memory; a rank's share of weights and moments is {share / 1e9:.2f} GB"
    rows = []
    for phase in phases:
        added = [most - before for most, before in zip(phase.most, phase.before, strict=True)]
        sizes = {
            "rank 0 before": phase.before[0],
            "most": phase.most[0],
            "more": added[0],
            "others, more": max(added[1:], default=0),
        }
        cells = {name: f"{each / 1e9:.2f}" for name, each in sizes.items()}
        rows.append({"": phase.name, "seconds": f"{phase.seconds:.1f}", **cells})
    console.print(results_table(title, rows, left=("",)))


if __name__ == "__main__":
    main()
