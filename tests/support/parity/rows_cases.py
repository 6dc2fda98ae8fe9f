"""Drawn configurations of TRL's trainers that learn from rows, and what becomes of each."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.policy.rows import Stepping, judged, make_config, outcome, preferences, stock
from tests.support.rollout.tiny_model import build_tiny_model

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
    """Train it three times: stock, step by step, and begun again; each in a process of its own."""
    folder.mkdir(parents=True)
    about = {"number": case.number, "kind": case.kind, "settings": case.said()}
    model = folder / "model"
    build_tiny_model(model, seed=case.model_seed)
    config = make_config(model, case.kind, **case.settings)
    held_out = case.held_out or None

    def stocks() -> Any:
        final, heard = stock(config, model, folder / "stock", case.rows, held_out)
        return {"final": final, "steps": heard.steps, "evaluations": heard.evaluations}

    whole = in_a_fork(stocks)
    if "error" in whole:
        return RowsTrial(outcome="refused", found=whole["error"], **about)
    num_steps = len(whole["steps"])
    at = max(1, min(num_steps - 1, int(case.at * num_steps)))

    def ours(first: int = 0) -> Any:
        run = Stepping(config, str(model), folder)
        orders: dict[int, Any] = {}
        resume = {}
        if first:
            orders = {
                int(epoch): order
                for epoch, order in json.loads((folder / "orders.json").read_text()).items()
            }
            resume = {"resume_from": folder / "saved", "orders": read_orders(orders, first)}
        else:
            run.prepare(case.rows, held_out)
            resume = {"save_at": at, "orders": orders}
        stepper, steps, evaluations = run.train(first, **resume)
        if not first:
            micro = {epoch: order.micro_batches for epoch, order in orders.items()}
            per_epoch = stepper.epochs.steps_per_epoch
            told = {epoch: [per_epoch, each] for epoch, each in micro.items()}
            (folder / "orders.json").write_text(json.dumps(told))
        return {"final": outcome(stepper.trainer), "steps": steps, "evaluations": evaluations}

    mine = in_a_fork(ours)
    if "error" in mine:
        return RowsTrial(outcome="failed", found=mine["error"], **about)
    found = differences(whole, mine)
    again = {"error": ""}
    if num_steps > 1:
        again = in_a_fork(lambda: ours(at))
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
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        try:
            answer = work()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is told
            last = traceback.extract_tb(error.__traceback__)[-1]
            answer = {"error": f"{type(error).__name__}: {error} ({last.name}:{last.lineno})"[:400]}
        with os.fdopen(writes, "w") as pipe:
            json.dump(answer, pipe)
        os._exit(0)
    os.close(writes)
    with os.fdopen(reads) as pipe:
        said = pipe.read()
    os.waitpid(child, 0)
    return json.loads(said) if said else {"error": "the process is gone"}


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
