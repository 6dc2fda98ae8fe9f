"""A whole run on one GPU, actor and engine in turn, killed three times: the same bits?"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu_check.checked import (
    Checked,
    Figure,
    Found,
    Options,
    check_one,
    in_words,
)
from benchmarks.jobs import ROOT, Failed
from mortal_steps.runs.run import Run, find_run
from tests.support.chaos.processes import process_ids
from tests.support.chaos.worker_logs import LogFollower
from tests.support.project import write_project

LOOK_EVERY_S = 0.01
STARTS = 6
"""Of one run's flow, at most."""
OF_A_GPU = (
    "model.new.hidden_size=512",
    "model.new.head_dim=64",
    "model.new.num_layers=8",
    "model.new.intermediate_size=1536",
    "model.new.max_position_embeddings=256",
    "training.max_completion_length=128",
    "rollout.max_tokens=128",
    "training.batch_size=16",
    "training.num_generations=8",
    "training.max_steps=12",
)
ON_A_CPU = ("training.max_steps=6", "rollout.num_shards=1")
SLEEPS = ("rollout.sleep_while_training=true",)
WARM = ("model.warm_start.steps=40", "model.warm_start.batch_size=16")
"""A model that says something: an untrained one's log-probabilities are all alike."""


@dataclass(frozen=True, slots=True)
class Shot:
    """SIGKILL for a process of the run, in the middle of a call."""

    victim: str
    """`rollout-0`, `actor-0` or `flow`."""
    stage: str
    """The call during which, in the worker's log."""
    number: int
    """Which of these calls."""


SHOTS = (
    Shot("rollout-0", "generate", 2),
    Shot("actor-0", "train_step", 3),
    Shot("flow", "train_step", 5),
)


def check(folder: Path, options: Options) -> Iterator[Checked]:
    """Yield the run undisturbed, the same run killed, and how far sampler and trainer are apart."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = Runs(config=write_project(folder), options=options, settings=_settings(options))
    yield check_one("killed", f"a run with {options.sampler}", runs.undisturbed)
    yield check_one(
        "killed", "the same run, SIGKILL at three points: same bits", lambda: runs.killed(SHOTS)
    )
    yield check_one("killed", "sampler against trainer", lambda: _apart(runs.alone))


def _settings(options: Options) -> list[str]:
    sampler = options.sampler
    settings = [f"rollout.engine={sampler}", *WARM, *(ON_A_CPU if options.tiny else OF_A_GPU)]
    if sampler == "vllm":
        settings += [f"compute.local.rollout.python={options.engines['vllm']}"]
    if sampler == "vllm" and options.is_gpu:
        settings += [*SLEEPS, "rollout.engine_options.gpu_memory_utilization=0.6"]
        settings += ["rollout.engine_options.enforce_eager=true"]
    return settings


@dataclass(kw_only=True)
class Runs:
    """A project's run, undisturbed and killed."""

    config: Path
    options: Options
    settings: list[str]
    alone: Run | None = None
    """The undisturbed run, once it has ended."""
    shots: list[Shot] = field(default_factory=list)
    hit: list[str] = field(default_factory=list)

    def undisturbed(self) -> Found:
        """Return how long each stage took, after the first step."""
        began = time.perf_counter()
        run = self.alone = self.drive("alone")
        took_s = time.perf_counter() - began
        found = stages(run)
        words = f"{run.manifest.step} steps in {took_s:.0f} s with start and end; {in_words(found)}"
        return Found(measured=words, figures=found)

    def killed(self, shots: Sequence[Shot]) -> Found:
        """Return whether the run, with these kills, has the same bits."""
        alone = self.alone
        if alone is None:
            raise Failed("there is nothing to compare it with")
        self.shots, self.hit = list(shots), []
        run = self.drive("killed")
        one, other = (each.manifest.final for each in (alone, run))
        is_same = (
            one is not None and other is not None and one.weights_sha256 == other.weights_sha256
        )
        told = ", ".join(self.hit) or "nobody"
        words = f"killed {told}: sha256 {'equal' if is_same else 'DIFFERENT'}"
        metrics = run.metrics() == alone.metrics()
        words += f", metrics {'equal' if metrics else 'DIFFERENT'}"
        return Found(passed=is_same and len(self.hit) == len(shots), measured=words)

    def drive(self, run_id: str) -> Run:
        """To its end, however often it has to be started; raises `Failed`."""
        for _ in range(STARTS):
            if self._start(run_id) == 0:
                return find_run(self.config.parent / "runs", run_id)
        raise Failed(f"{run_id} did not end in {STARTS} starts: {self._printed(run_id)}")

    def _start(self, run_id: str) -> int:
        with self._output(run_id).open("ab") as output:
            flow = subprocess.Popen(
                [
                    *(sys.executable, "-m", "benchmarks.gpu_check.flow"),
                    *(str(self.config), run_id, *self.settings),
                ],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            )
        logs = LogFollower(self.config.parent / "runs" / run_id / "logs")
        seen: dict[str, int] = {}
        try:
            while flow.poll() is None:
                if time.monotonic() > self.options.until:
                    raise Failed(f"broken off: the part's time is over; {self._printed(run_id)}")
                for event in logs.new_events():
                    if event.kind == "begins":
                        seen[event.name] = seen.get(event.name, 0) + 1
                self._shoot(flow.pid, seen)
                time.sleep(LOOK_EVERY_S)
        finally:
            logs.close()
            if flow.poll() is None:
                flow.kill()
        return flow.wait()

    def _shoot(self, flow: int, seen: dict[str, int]) -> None:
        if not self.shots or seen.get(self.shots[0].stage, 0) < self.shots[0].number:
            return
        for pid in process_ids(flow, self.shots[0].victim):
            os.kill(pid, signal.SIGKILL)
            self.hit.append(f"{self.shots[0].victim} in {self.shots[0].stage}")
            self.shots.pop(0)
            return

    def _printed(self, run_id: str) -> str:
        return self._output(run_id).read_text(errors="replace")[-1500:]

    def _output(self, run_id: str) -> Path:
        return self.config.parent / f"{run_id}.out"


STAGES = ("generate", "train_step", "sync_weights", "checkpoint")
"""Those that take long enough to be compared."""


def stages(run: Run) -> dict[str, Figure]:
    """Return the seconds of each, the median of all steps but the first."""
    took = {
        stage: [row["busy_s"] for row in run.timings() if row["stage"] == stage and row["step"]]
        for stage in STAGES
    }
    return {
        stage: Figure(value=statistics.median(seconds), unit="s")
        for stage, seconds in took.items()
        if seconds
    }


APART = "sampling/sampling_logp_difference"


def _apart(run: Run | None) -> Found:
    """Compare the sampler's log-probabilities with the trainer's, as TRL did in each step."""
    if run is None:
        return Found(passed=False, measured="there is no run")
    rows = [row for row in run.metrics() if f"{APART}/mean" in row]
    if not rows:
        return Found(measured="not measured with this engine")
    mean = statistics.mean(row[f"{APART}/mean"] for row in rows)
    most = max(row[f"{APART}/max"] for row in rows)
    words = f"{len(rows)} steps, nats: mean {mean:.1e}, max {most:.1e}"
    return Found(measured=words)
