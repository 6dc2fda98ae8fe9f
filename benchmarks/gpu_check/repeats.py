"""Sampled again in a new process: the same bits? How fast, and how far from float32?"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Figure, Found, Options, check_one
from benchmarks.gpu_check.models import RANK, adapter_in, model_in
from mortal_steps.rollout.engines.table import ENGINES

PART_OF_MEMORY = 0.5
EAGER = {"enforce_eager": True}
CACHED, UNCACHED = {"enable_prefix_caching": True}, {"enable_prefix_caching": False}
INVARIANT = {"VLLM_BATCH_INVARIANT": "1"}
Answer = dict[str, Any]


class Shards:
    """Samples the part's shard, each time in a process of its own."""

    def __init__(self, folder: Path, options: Options) -> None:
        self._folder, self._options = folder, options

    def sample(
        self,
        *,
        rows: int = 32,
        probes: int = 0,
        adapter: bool = False,
        options: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return what benchmarks/gpu_check/shards.py answers; raises `Failed`."""
        told = self._options
        model = model_in(self._folder, told)
        kind = ENGINES.entry(told.sampler)
        chosen: dict[str, Any] = {kind.memory_option: PART_OF_MEMORY} if kind.memory_option else {}
        if adapter and kind.adapters:
            chosen |= kind.adapters.options_for(RANK)
        if told.sampler == "vllm":
            chosen |= options or {}
        return told.ask(
            told.engines[told.sampler],
            "shards",
            self._folder,
            environment=environment,
            engine=told.sampler,
            model=model,
            adapter=adapter_in(self._folder, told) if adapter else None,
            rows=4 if told.tiny else rows,
            tokens=6 if told.tiny else 512,
            dtype="bfloat16" if told.is_gpu else "float32",
            options=chosen,
            probes=min(probes, 4) if told.tiny else probes,
        )


def check_eager(folder: Path, options: Options) -> Iterator[Checked]:
    """Without compilation: bits, speed by the number of sequences, distance from float32."""
    shards = Shards(folder, options)
    seen: dict[str, Answer] = {}

    def first() -> Found:
        seen["first"] = answer = shards.sample(rows=200, probes=200, options=EAGER)
        return _speed(answer)

    def again() -> Found:
        return _same(seen.get("first"), shards.sample(rows=200, options=EAGER))

    yield check_one("sampling", f"{options.sampler}, eager, 200 sequences", first)
    yield check_one("sampling", "the same in a new process: same bits", again)
    yield check_one(
        "sampling", "log-probabilities against float32", lambda: _far(seen.get("first"))
    )
    few = partial(shards.sample, rows=32, options=EAGER)
    yield check_one("sampling", f"{options.sampler}, eager, 32 sequences", lambda: _speed(few()))


def check_prefix_cache(folder: Path, options: Options) -> Iterator[Checked]:
    """Four rows have each prompt: with vLLM's prefix cache, without it, and with it again."""
    shards = Shards(folder, options)
    seen: dict[str, Answer] = {}

    def cached() -> Found:
        seen["cached"] = answer = shards.sample(rows=200, options=EAGER | CACHED)
        return _speed(answer)

    def uncached() -> Found:
        answer = shards.sample(rows=200, options=EAGER | UNCACHED)
        return _same(seen.get("cached"), answer, is_promised=False)

    def again() -> Found:
        return _same(seen.get("cached"), shards.sample(rows=200, options=EAGER | CACHED))

    yield check_one("prefix cache", "with the prefix cache, 200 sequences", cached)
    yield check_one("prefix cache", "with it in a new process: same bits", again)
    yield check_one("prefix cache", "without it: same bits", uncached)


def check_compiled(folder: Path, options: Options) -> Iterator[Checked]:
    """Compiled, with a cache that is cold, warm and another's; with an adapter; batch-invariant.

    The checks that are not promised to give the same bits pass where they run: what they found
    stands in the report.
    """
    shards = Shards(folder, options)
    seen: dict[str, Answer] = {}
    caches = {name: {"VLLM_CACHE_ROOT": str(folder / name)} for name in ("cache", "other")}

    def look(name: str, against: str | None = None, **job: Any) -> Callable[[], Found]:
        def found() -> Found:
            seen[name] = answer = shards.sample(**job)
            if against is None:
                return _speed(answer)
            return _same(seen.get(against), answer, is_promised=name in PROMISED)

        return found

    def checked(name: str, against: str | None = None, **job: Any) -> Checked:
        return check_one("compiled", name, look(name, against, **job))

    cold, other = caches["cache"], caches["other"]
    yield checked("compiled, cold", environment=cold)
    yield checked("compiled, warm: same bits", "compiled, cold", environment=cold)
    yield checked("compiled anew: same bits", "compiled, cold", environment=other)
    shutil.rmtree(folder / "other", ignore_errors=True)
    yield checked("adapter, eager", adapter=True, options=EAGER)
    yield checked("adapter again: same bits", "adapter, eager", adapter=True, options=EAGER)
    if options.sampler == "vllm" and options.is_gpu:
        job: dict[str, Any] = {"options": EAGER, "environment": INVARIANT}
        yield checked("adapter, batch-invariant", adapter=True, **job)
        name = "adapter, batch-invariant, again: same bits"
        yield checked(name, "adapter, batch-invariant", adapter=True, **job)
    yield checked("eager", options=EAGER)
    if options.sampler == "vllm" and options.is_gpu:
        yield checked("batch-invariant, eager", options=EAGER, environment=INVARIANT)


PROMISED = ("compiled, warm: same bits", "adapter, batch-invariant, again: same bits")


def _speed(answer: Answer) -> Found:
    words = (
        f"{answer['tokens_per_s']:,.0f} tokens/s, started in {answer['start_s']:.1f} s, twice in "
        f"one process {'equal' if _repeats(answer) else 'DIFFERENT'}"
    )
    if answer["used_bytes"]:
        words += f", {answer['used_bytes'] / 1e9:.1f} GB in use"
    found = {
        "tokens": Figure(value=answer["tokens_per_s"], unit="tokens/s"),
        "start": Figure(value=answer["start_s"], unit="s"),
    }
    return Found(passed=_repeats(answer), measured=words, figures=found)


def _same(first: Answer | None, answer: Answer, *, is_promised: bool = True) -> Found:
    if first is None:
        return Found(passed=False, measured="there is nothing to compare it with")
    is_same = first["digests"][0] == answer["digests"][0]
    promised = "" if is_promised or is_same else " (not promised)"
    return Found(
        passed=_repeats(answer) and (is_same or not is_promised),
        measured=f"{'equal' if is_same else 'DIFFERENT'}{promised}; {_speed(answer).measured}",
        figures=_speed(answer).figures,
    )


def _far(answer: Answer | None) -> Found:
    """Return the distribution that the canary's tolerance has to be wide enough for."""
    if answer is None:
        return Found(passed=False, measured="there is nothing to compare")
    texts = answer["differences"]
    every = sorted(nats for text in texts for nats in text)
    means = sorted(sum(text) / len(text) for text in texts)
    most = sorted(map(max, texts))
    numbers = {
        "mean": sum(every) / len(every),
        "p99": every[int(0.99 * (len(every) - 1))],
        "max": every[-1],
        "largest_mean_of_a_probe": means[-1],
        "median_max_of_a_probe": most[len(most) // 2],
    }
    words = ", ".join(f"{name.replace('_', ' ')} {nats:.1e}" for name, nats in numbers.items())
    return Found(measured=f"{len(texts)} probes, nats: {words}")


def _repeats(answer: Answer) -> bool:
    return len(set(answer["digests"])) == 1
