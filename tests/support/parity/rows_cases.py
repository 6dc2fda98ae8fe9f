"""Drawn configurations of TRL's trainers that learn from rows, and what becomes of each."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import signal
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from mortal_steps.config.sharding import SHARDED_OPTIMIZERS
from mortal_steps.policy.ranks.world import join
from tests.support.forking.holder import fork_ranks
from tests.support.policy.ranks import followers_of
from tests.support.policy.rows import Stepping, judged, make_config, preferences, reached, stock
from tests.support.rollout.tiny_model import build_tiny_model

LIMIT_S = 240
"""Seconds after which a process counts as hung."""
GONE = "the process is gone"
KINDS = ("sft", "dpo", "kto", "reward")
LOSSES_OF_DPO = (
    *("sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard"),
    *("aot", "aot_unpaired", "apo_zero", "apo_down", "discopop", "sft"),
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsCase:
    """One drawn configuration."""

    kind: str
    number: int
    model_seed: int
    rows: list[dict[str, Any]]
    held_out: list[dict[str, Any]]
    settings: dict[str, Any]
    at: float
    """Part of the run after which it is begun again."""
    killed: tuple[float, int] | None = None
    """On several ranks: the part of the rest after which it is killed, and the rank that is."""

    def said(self) -> str:
        shown = {name: value for name, value in self.settings.items() if name != "trl"}
        return json.dumps({**shown, **self.settings["trl"]}, default=str)


def draw_rows(kind: str, seed: int, number: int) -> RowsCase:
    """Draw a configuration, a function of the kind, the seed and the number."""
    rng = random.Random(f"{kind} {seed} {number}")
    pick, often = rng.choice, lambda share: rng.random() < share
    pieces = rng.randint(1, 4)
    settings: dict[str, Any] = {
        "batch_size": pieces * rng.randint(1, 3),
        "gradient_accumulation_steps": pieces,
        "learning_rate": pick([1e-3, 3e-4]),
        "gradient_checkpointing": often(0.3),
    }
    trl: dict[str, Any] = {
        "lr_scheduler_type": pick(["linear", "cosine", "constant_with_warmup"]),
        "warmup_steps": pick([0, 2]),
        "weight_decay": pick([0.0, 0.1]),
        "max_grad_norm": pick([1.0, 0.1]),
        "optim": pick(["adamw_torch", "adamw_torch_fused", "adafactor", "sgd"]),
        "dataloader_drop_last": often(0.25),
        "per_device_eval_batch_size": rng.randint(1, 4),
    }
    settings |= {"max_steps": rng.randint(3, 12)} if often(0.25) else {}
    settings |= {} if "max_steps" in settings else {"num_epochs": pick([1, 2, 3, 1.5])}
    if often(0.3):
        trl["neftune_noise_alpha"] = 5.0
    if often(0.3):
        trl["model_init_kwargs"] = {"attention_dropout": 0.1}
    if often(0.5):
        dropout = pick([0.0, 0.1])
        settings |= {
            "use_lora": True,
            "lora": {"r": 4, "dropout": dropout, "target_modules": ["q_proj", "v_proj"]},
        }
    if often(0.5):
        settings |= {"eval_steps": pick([2, 3]), "on_start": often(0.5)}
    OF_KIND[kind](rng, settings, trl)
    make = {"sft": _texts_or_pairs(rng), "kto": judged}.get(kind, preferences)
    count = rng.randint(10, 30)
    return RowsCase(
        kind=kind,
        number=number,
        model_seed=rng.randrange(100),
        rows=make(count, rng.randrange(1000)),
        held_out=make(rng.randint(3, 7), rng.randrange(1000)) if "eval_steps" in settings else [],
        settings={**settings, "trl": trl},
        at=rng.random(),
    )


def draw_rows_on_ranks(kind: str, seed: int, number: int, ranks: int) -> RowsCase:
    """Draw a configuration for so many ranks: every second one is dealt out to them."""
    case = draw_rows(kind, seed, number)
    rng = random.Random(f"{kind} {seed} {number} on {ranks} ranks")
    settings = {**case.settings, "ranks": ranks, "trl": dict(case.settings["trl"])}
    settings["batch_size"] *= ranks
    if number % 2:
        settings["sharding"] = "full"
        if settings["trl"]["optim"] not in SHARDED_OPTIMIZERS:
            settings["trl"]["optim"] = rng.choice(SHARDED_OPTIMIZERS)
        if "lora" in settings:
            settings["lora"] = {**settings["lora"], "publish": "adapter"}
    killed = (rng.random(), rng.randrange(ranks))
    return dataclasses.replace(case, settings=settings, killed=killed)


def _texts_or_pairs(rng: random.Random) -> Callable[..., list[dict[str, Any]]]:
    from tests.support.policy.rows import pairs, texts

    return rng.choice([texts, pairs])


def _of_sft(rng: random.Random, settings: dict[str, Any], trl: dict[str, Any]) -> None:
    samplers = ["random", "random", "sequential", "group_by_length", "batch_rebalance"]
    trl["train_sampling_strategy"] = rng.choice(samplers)
    settings["algorithm"] = {"loss_type": rng.choice(["nll", "nll", "dft"])}
    if rng.random() < 0.35:
        strategy = rng.choice(["bfd", "bfd_split", "wrapped"])
        trl |= {"packing": True, "packing_strategy": strategy, "max_length": rng.choice([32, 48])}
    else:
        ends = rng.choice(["keep_start", "keep_end"])
        trl |= {"max_length": rng.choice([16, 24, 128]), "truncation_mode": ends}


def _of_dpo(rng: random.Random, settings: dict[str, Any], trl: dict[str, Any]) -> None:
    losses = tuple(rng.sample(LOSSES_OF_DPO, rng.choice([1, 1, 2])))
    settings["algorithm"] = {"loss_type": losses, "beta": rng.choice([0.1, 0.5])}
    if {"robust", "exo_pair"} & set(losses):
        trl["label_smoothing"] = 0.1
    trl |= {"max_length": rng.choice([24, 128]), "disable_dropout": rng.random() < 0.5}
    _of_a_reference(rng, settings, trl)


def _of_kto(rng: random.Random, settings: dict[str, Any], trl: dict[str, Any]) -> None:
    loss = rng.choice(["kto", "kto", "apo_zero_unpaired"])
    weight = rng.choice([1.0, 1.3])
    settings["algorithm"] = {"loss_type": loss, "desirable_weight": weight}
    if loss == "kto":
        trl["train_sampling_strategy"] = "sequential"
        settings["batch_size"] = settings["gradient_accumulation_steps"] * rng.randint(2, 4)
    trl |= {"max_length": rng.choice([24, 128]), "disable_dropout": rng.random() < 0.5}
    _of_a_reference(rng, settings, trl)


def _of_a_reference(rng: random.Random, settings: dict[str, Any], trl: dict[str, Any]) -> None:
    if "use_lora" not in settings and rng.random() < 0.4:
        trl |= {"sync_ref_model": True, "ref_model_sync_steps": 2}
    elif rng.random() < 0.4:
        trl["precompute_ref_log_probs"] = True
        trl |= {"precompute_ref_batch_size": rng.randint(1, 5)} if rng.random() < 0.5 else {}


def _of_reward(rng: random.Random, settings: dict[str, Any], trl: dict[str, Any]) -> None:
    trl |= {"max_length": rng.choice([24, 128]), "disable_dropout": rng.random() < 0.5}
    if rng.random() < 0.5:
        trl["center_rewards_coefficient"] = 0.01


OF_KIND = {"sft": _of_sft, "dpo": _of_dpo, "kto": _of_kto, "reward": _of_reward}
"""What is drawn for one kind alone."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RowsTrial:
    """What became of a case."""

    number: int
    kind: str
    settings: str
    outcome: str
    """`equal`, `different`, `refused` by TRL itself, or `failed`."""
    found: str
    num_steps: int = 0
    begun_again: int = 0
    """The step at which it was begun again, in a new process."""


def attempt_rows(case: RowsCase, folder: Path) -> RowsTrial:
    """Train it by stock TRL, step by step, and step by step begun again, each in processes of its
    own. What is begun again has been killed, where there are several ranks."""
    folder.mkdir(parents=True)
    about = {"number": case.number, "kind": case.kind, "settings": case.said()}
    build_tiny_model(folder / "model", seed=case.model_seed)
    whole = in_forks(lambda rank: _stock(case, folder, rank), case.settings.get("ranks", 1))
    if "error" in whole:
        return RowsTrial(outcome="refused", found=whole["error"], **about)
    num_steps = len(whole["steps"])
    at = max(1, min(num_steps - 1, int(case.at * num_steps)))
    save_at = None if case.killed else at
    mine = in_a_fork(lambda: _stepped(case, folder, save_at=save_at))
    if "error" in mine:
        return RowsTrial(outcome="failed", found=mine["error"], **about)
    found = differences(whole, mine)
    if num_steps > 1:
        if case.killed:
            killing = Killing(at + 1 + int(case.killed[0] * (num_steps - at)), case.killed[1])
            killed = in_a_fork(lambda: _stepped(case, folder, save_at=at, killing=killing))
            if killed != {"error": GONE}:
                return RowsTrial(outcome="failed", found=f"not killed: {killed}", **about)
        again = in_a_fork(lambda: _stepped(case, folder, first=at))
        if "error" in again:
            return RowsTrial(outcome="failed", found=f"begun again: {again['error']}", **about)
        found += [f"begun again: {each}" for each in differences(mine, again, since=at)]
    return RowsTrial(
        outcome="different" if found else "equal",
        found="; ".join(found[:4]),
        num_steps=num_steps,
        begun_again=at if num_steps > 1 else 0,
        **about,
    )


def _stock(case: RowsCase, folder: Path, rank: int) -> Any:
    """Train by stock TRL, as one of its ranks."""
    config = make_config(folder / "model", case.kind, **case.settings)
    ranks, shards = config.training.ranks, config.training.sharding == "full"
    if ranks > 1:
        join(rank, ranks, folder / "meeting", LIMIT_S, shards=shards)
    final, heard = stock(
        config, folder / "model", folder / f"stock-{rank}", case.rows, case.held_out or None
    )
    return {"final": final, "steps": heard.steps, "evaluations": heard.evaluations}


def _stepped(
    case: RowsCase,
    folder: Path,
    *,
    first: int = 0,
    save_at: int | None = None,
    killing: Killing | None = None,
) -> Any:
    """Train step by step, from the beginning or from what was saved after `first` steps."""
    config = make_config(folder / "model", case.kind, **case.settings)
    if config.training.ranks > 1:
        fork_ranks()
    run, options = Stepping(config, str(folder / "model"), folder), dict[str, Any]()
    orders: dict[int, Any] = {}
    if first:
        told = json.loads((folder / "orders.json").read_text())
        recorded = {int(epoch): order for epoch, order in told.items()}
        orders, options = read_orders(recorded, first), {"resume_from": folder / "saved"}
    elif not (folder / "prepared").exists():
        run.prepare(case.rows, case.held_out or None)
    stepper, steps, evaluations = run.train(
        first, orders=orders, save_at=save_at, callback=killing, **options
    )
    if not first:
        per_epoch = stepper.epochs.steps_per_epoch
        told = {epoch: [per_epoch, order.micro_batches] for epoch, order in orders.items()}
        (folder / "orders.json").write_text(json.dumps(told))
    return {"final": reached(stepper), "steps": steps, "evaluations": evaluations}


class Killing(TrainerCallback):
    """Kills a rank in the middle of a step."""

    def __init__(self, step: int, victim: int) -> None:
        self._step, self._victim = step, victim

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step + 1 == self._step:
            others = sorted(followers_of(os.getpid()))
            os.kill([os.getpid(), *others][self._victim], signal.SIGKILL)


def read_orders(told: dict[int, Any], first: int) -> dict[int, Any]:
    """Return the orders that are recorded when a run is begun again at `first`: of the epochs that
    have begun before."""
    from mortal_steps.policy.batches.prepared_rows import EpochOrder

    return {
        epoch: EpochOrder(epoch=epoch, micro_batches=micro)
        for epoch, (per_epoch, micro) in told.items()
        if epoch * per_epoch < first
    }


def in_a_fork(work: Callable[[], Any]) -> Any:
    """Return what `work` does in a fork of this process, or its `error`, through JSON."""
    return in_forks(lambda _: work(), 1)


def in_forks(work: Callable[[int], Any], count: int) -> Any:
    """Return what `work(0)` does in a fork of this process, beside forks that do `work(1)` and so
    on; or the `error` of the first that has one."""
    forked = [_begin(work, number) for number in range(count)]
    answers = []
    for child, reads in forked:
        with os.fdopen(reads) as pipe:
            said = pipe.read()
        os.waitpid(child, 0)
        answers.append(json.loads(said) if said else {"error": GONE})
    return next((each for each in answers if "error" in each), answers[0])


def _begin(work: Callable[[int], Any], number: int) -> tuple[int, int]:
    """Begin a fork that does `work(number)`; return its pid, and where its answer is read."""
    reads, writes = os.pipe()
    child = os.fork()
    if child:
        os.close(writes)
        return child, reads
    os.close(reads)
    signal.alarm(LIMIT_S)
    try:
        answer = work(number)
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
        last = traceback.extract_tb(error.__traceback__)[-1]
        answer = {"error": f"{type(error).__name__}: {error} ({last.name}:{last.lineno})"[:400]}
    with os.fdopen(writes, "w") as pipe:
        json.dump(answer, pipe)
    os._exit(0)


def differences(one: Any, other: Any, *, since: int = 0) -> list[str]:
    """Return what differs between two runs after `since` steps; they went through JSON."""
    found = [name for name in one["final"] if one["final"][name] != other["final"][name]]
    for step in (step for step in one["steps"] if int(step) > since):
        if _numbers(one["steps"][step]) != _numbers(other["steps"].get(step, {})):
            found.append(f"the metrics of step {step}")
    judged_later = [each for each in one["evaluations"] if each[0] > since or not since]
    if repr(judged_later) != repr(other["evaluations"]):
        found.append("evaluations")
    return found


def _numbers(metrics: dict[str, float]) -> dict[str, str]:
    """Return them as text, so that a NaN equals a NaN."""
    return {name: repr(value) for name, value in metrics.items() if value == value}
