"""A whole run on one GPU, actor and engine in turn, killed three times: the same bits?"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.gpu_check.checked import ROOT, Checked, Failed, Found, Options, check_one
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
    seen: dict[str, Run] = {}

    def undisturbed() -> Found:
        began = time.perf_counter()
        run = seen["alone"] = _Runs(folder, options).drive("alone")
        return Found(measured=f"{run.manifest.step} steps in {time.perf_counter() - began:.0f} s")

    def killed() -> Found:
        if "alone" not in seen:
            raise Failed("there is nothing to compare it with")
        runs = _Runs(folder, options, list(SHOTS))
        run, alone = runs.drive("killed"), seen["alone"]
        one, other = (each.manifest.final for each in (alone, run))
        is_same = (
            one is not None and other is not None and one.weights_sha256 == other.weights_sha256
        )
        told = ", ".join(runs.hit) or "nobody"
        words = f"killed {told}: sha256 {'equal' if is_same else 'DIFFERENT'}"
        metrics = run.metrics() == alone.metrics()
        words += f", metrics {'equal' if metrics else 'DIFFERENT'}"
        return Found(passed=is_same and len(runs.hit) == len(SHOTS), measured=words)

    yield check_one("killed", f"a run with {options.sampler}", undisturbed)
    yield check_one("killed", "the same run, SIGKILL at three points", killed)
    yield check_one("killed", "sampler against trainer", lambda: _apart(seen.get("alone")))


@dataclass
class _Runs:
    folder: Path
    options: Options
    shots: list[Shot] = field(default_factory=list)
    hit: list[str] = field(default_factory=list)

    def drive(self, run_id: str) -> Run:
        """To its end, however often it has to be started; raises `Failed`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "tiny.toml").exists():
            write_project(self.folder)
        for _ in range(STARTS):
            if self._start(run_id) == 0:
                return find_run(self.folder / "runs", run_id)
        raise Failed(f"{run_id} did not end in {STARTS} starts: {self._printed(run_id)}")

    def _start(self, run_id: str) -> int:
        with (self.folder / f"{run_id}.out").open("ab") as output:
            flow = subprocess.Popen(
                [
                    *(sys.executable, "-m", "benchmarks.gpu_check.flow"),
                    *(str(self.folder), run_id, *self._settings()),
                ],
                cwd=ROOT,
                stdout=output,
                stderr=output,
                env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
            )
        logs = LogFollower(self.folder / "runs" / run_id / "logs")
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

    def _settings(self) -> list[str]:
        options, sampler = self.options, self.options.sampler
        settings = [f"rollout.engine={sampler}", *WARM]
        settings += ON_A_CPU if options.tiny else OF_A_GPU
        if sampler == "vllm":
            settings += [f"compute.local.rollout.python={options.engines['vllm']}"]
        if sampler == "vllm" and options.is_gpu:
            settings += [*SLEEPS, "rollout.engine_options.gpu_memory_utilization=0.6"]
            settings += ["rollout.engine_options.enforce_eager=true"]
        return settings

    def _printed(self, run_id: str) -> str:
        return (self.folder / f"{run_id}.out").read_text(errors="replace")[-1500:]


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
    return Found(measured=words, numbers={"mean": mean, "max": most})
