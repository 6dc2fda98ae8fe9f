"""Sampled again in a new process: the same bits? How fast, and how far from float32?"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu_check.checked import Checked, Figure, Found, Options, check_one
from benchmarks.gpu_check.models import RANK, adapter_in, model_in
from mortal_steps.config import ModelConfig, RolloutConfig
from mortal_steps.rollout.engines.base import Engine, SampledTokens
from mortal_steps.rollout.engines.table import ENGINES
from mortal_steps.types import SamplingParams

PROMPT = 150
"""Tokens of each prompt; four rows have the same."""
PART_OF_MEMORY = 0.5
EAGER = {"enforce_eager": True}
CACHED, UNCACHED = {"enable_prefix_caching": True}, {"enable_prefix_caching": False}
INVARIANT = {"VLLM_BATCH_INVARIANT": "1"}
Answer = dict[str, Any]


class Shards:
    """Samples a part's shard, each time in a process of its own."""

    def __init__(self, part: str, folder: Path, options: Options) -> None:
        self._part, self._folder, self._options = part, folder, options
        self.answers: dict[str, Answer] = {}
        """By the name of the check."""

    def check(
        self, name: str, against: str | None = None, *, is_promised: bool = True, **job: Any
    ) -> Checked:
        """Sample as the job says. It fails if the bits are not those of the check `against`, where
        that is promised: else, what it found stands in the report."""

        def look() -> Found:
            self.answers[name] = answer = self._sample(**job)
            if against is None:
                return _speed(answer)
            return _same(self.answers.get(against), answer, is_promised=is_promised)

        return check_one(self._part, name, look)

    def _sample(
        self,
        *,
        rows: int = 32,
        probes: int = 0,
        adapter: bool = False,
        options: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Answer:
        """Return what `sampled_twice` answers; raises `Failed`."""
        told = self._options
        model = model_in(self._folder, told)
        kind = ENGINES.entry(told.sampler)
        chosen: dict[str, Any] = {kind.memory_option: PART_OF_MEMORY} if kind.memory_option else {}
        if adapter and kind.adapters:
            chosen |= kind.adapters.options_for(RANK)
        if told.sampler == "vllm":
            chosen |= options or {}
        return told.ask(
            "repeats:sampled_twice",
            self._folder,
            python=told.engines[told.sampler],
            variables=environment,
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
    shards = Shards("sampling", folder, options)
    first = f"{options.sampler}, eager, 200 sequences"
    yield shards.check(first, rows=200, probes=200, options=EAGER)
    yield shards.check("the same in a new process: same bits", first, rows=200, options=EAGER)
    far = "log-probabilities against float32"
    yield check_one("sampling", far, lambda: _far(shards.answers.get(first)))
    yield shards.check(f"{options.sampler}, eager, 32 sequences", rows=32, options=EAGER)


def check_prefix_cache(folder: Path, options: Options) -> Iterator[Checked]:
    """Four rows have each prompt: with vLLM's prefix cache, again, and without it."""
    shards = Shards("prefix cache", folder, options)
    first = "with the prefix cache, 200 sequences"
    cached: dict[str, Any] = {"rows": 200, "options": EAGER | CACHED}
    yield shards.check(first, **cached)
    yield shards.check("with it in a new process: same bits", first, **cached)
    job: dict[str, Any] = {"rows": 200, "options": EAGER | UNCACHED}
    yield shards.check("without it: same bits", first, is_promised=False, **job)


def check_compiled(folder: Path, options: Options) -> Iterator[Checked]:
    """Compiled, with a cache that is cold, warm and another's; with an adapter; batch-invariant."""
    shards = Shards("compiled", folder, options)
    cold, other = ({"VLLM_CACHE_ROOT": str(folder / name)} for name in ("cache", "other"))
    first = "compiled, cold"
    yield shards.check(first, environment=cold)
    yield shards.check("compiled, warm: same bits", first, environment=cold)
    yield shards.check("compiled anew: same bits", first, is_promised=False, environment=other)
    shutil.rmtree(folder / "other", ignore_errors=True)
    adapter: dict[str, Any] = {"adapter": True, "options": EAGER}
    yield shards.check("adapter, eager", **adapter)
    yield shards.check("adapter again: same bits", "adapter, eager", is_promised=False, **adapter)
    has_invariance = options.sampler == "vllm" and options.is_gpu
    if has_invariance:
        first = "adapter, batch-invariant"
        yield shards.check(first, environment=INVARIANT, **adapter)
        yield shards.check(f"{first}, again: same bits", first, environment=INVARIANT, **adapter)
    yield shards.check("eager", options=EAGER)
    if has_invariance:
        yield shards.check("batch-invariant, eager", options=EAGER, environment=INVARIANT)


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


def sampled_twice(job: dict[str, Any]) -> dict[str, Any]:
    """Digests of the shard's two samplings, which are to be equal, and what they took."""
    rows, tokens = job["rows"], job["tokens"]
    build = ENGINES.load(job["engine"])
    began = time.perf_counter()
    engine: Engine = build(  # before torch is imported
        model_path=job["model"],
        model=ModelConfig(max_model_len=PROMPT + tokens, dtype=job["dtype"]),
        rollout=RolloutConfig(
            engine=job["engine"], weight_sync="volume", engine_options=job["options"]
        ),
        tokenizer=lambda: _tokenizer(job["model"]),
    )
    if job.get("adapter"):
        engine.load(Path(job["adapter"]))
    start_s = time.perf_counter() - began
    prompts = [[3 + (row // 4 + at) % 60 for at in range(PROMPT)] for row in range(rows)]
    digests, took = [], []
    for _ in range(2):
        began = time.perf_counter()
        sampled = engine.sample(prompts, range(rows), SamplingParams(max_tokens=tokens))
        took.append(time.perf_counter() - began)
        digests.append(_digest(sampled))
    num_tokens = sum(len(one.token_ids) for one in sampled)
    texts = [
        [*prompt[-20:], *one.token_ids[:43]] for prompt, one in zip(prompts, sampled, strict=True)
    ]
    texts = texts[: job["probes"]]
    scores = [engine.score(text) for text in texts]
    used = _used_bytes()
    engine.close()
    return {
        "digests": digests,
        "start_s": start_s,
        "tokens_per_s": num_tokens / min(took),
        "num_tokens": num_tokens,
        "used_bytes": used,
        "differences": _differences(job["model"], texts, scores) if texts else [],
    }


def _digest(sampled: Sequence[SampledTokens]) -> str:
    hasher = hashlib.sha256()
    for one in sampled:
        exact = [list(map(int, one.token_ids)), [float(x).hex() for x in one.logprobs]]
        hasher.update(json.dumps(exact).encode())
    return hasher.hexdigest()


def _differences(
    model: str, texts: Sequence[Sequence[int]], scores: Sequence[Sequence[float]]
) -> list[list[float]]:
    """Of each text's tokens, in nats: the engine against float32, as the canary compares them."""
    import torch
    from transformers import AutoModelForCausalLM

    device = "cuda" if torch.cuda.is_available() else "cpu"
    exact = AutoModelForCausalLM.from_pretrained(model, dtype="float32").to(device).eval()
    found = []
    for text, score in zip(texts, scores, strict=True):
        ids = torch.tensor([list(text)], device=device)
        with torch.no_grad():
            logprobs = exact(input_ids=ids).logits[0, :-1].log_softmax(-1)
        right = logprobs.gather(1, ids[0, 1:, None]).squeeze(1).tolist()
        found.append([abs(a - b) for a, b in zip(score, right, strict=True)])
    return found


def _used_bytes() -> int:
    """Of the GPU's memory, by whoever."""
    import torch

    if not torch.cuda.is_available():
        return 0
    free, total = torch.cuda.mem_get_info()
    return total - free


def _tokenizer(model: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)
