"""A forecast in words, for `mortal train --dry-run`."""

import logging
from collections.abc import Callable, Iterator, Sequence

from mortal_steps.compute.devices import Gpu
from mortal_steps.compute.memory import CONTEXT
from mortal_steps.compute.placement import Placement
from mortal_steps.orchestration.checking.forecast import (
    BESIDE,
    PROCESS,
    VLLM_SHARE,
    Card,
    Forecast,
    gib,
)
from mortal_steps.orchestration.checking.room_on_gpus import warnings_of
from mortal_steps.orchestration.checking.step_time import Rates, time_in_words, warnings_of_time
from mortal_steps.report.units import counted

logger = logging.getLogger(__name__)


def report_forecast(
    found: Forecast, show: Callable[[str], None] | None, rates: Rates | None = None
) -> tuple[str, ...]:
    """Show a forecast, or log and return its warnings; raises as `warnings_of`. `rates` are those
    of this machine, if they were measured."""
    if show is None:
        warnings = (*warnings_of(found), *warnings_of_time(found, rates))
        for warning in warnings:
            logger.warning("%s", warning)
        return warnings
    for line in lines_of(found, rates):
        show(line)
    return ()


def lines_of(found: Forecast, rates: Rates | None = None) -> Iterator[str]:
    """Yield the forecast for a user; raises what `warnings_of` raises."""
    warnings = (*warnings_of(found), *warnings_of_time(found, rates))
    yield _line("placement", placement_in_words(found.placement))
    yield _line("batch", _batch(found))
    if found.placement.engines:
        yield _line("sampling", _sampling(found))
    alike: dict[tuple[object, ...], list[Card]] = {}
    for card in found.cards():
        alike.setdefault((card.gpu.name, card.training, tuple(card.engines)), []).append(card)
    for cards in alike.values():
        yield from _card_lines(found, cards)
    if found.on_cpu and not alike:
        yield _line("memory", "not known: config.json is not here, or uses other names")
    if rates is not None:
        yield _line("time", time_in_words(found, rates))
    for warning in warnings:
        yield _line("warning", warning)


def placement_in_words(found: Placement) -> str:
    """Such as `actor on GPU 0 (NVIDIA A10G), 1 rollout worker on GPU 1 (NVIDIA A10G)`."""
    count = len(found.engines)
    workers = counted(count, "rollout worker")
    actor = _named(found.trainers)
    if found.shares and len(found.gpus) == 1:
        return f"actor and {workers} on {actor}"
    sampling = {gpu.uuid: gpu for gpus in found.engines for gpu in gpus}
    each = "one each on " if 1 < count == len(sampling) else "on "
    return f"actor on {actor}, {workers} {each}{_named(list(sampling.values()))}"


def _named(gpus: Sequence[Gpu]) -> str:
    if not gpus:
        return "the CPU"
    name = gpus[0].name
    numbers = ", ".join(gpu.address for gpu in gpus if gpu.address)
    if not numbers:
        return f"{len(gpus)} {name}" if len(gpus) > 1 else f"one {name}"
    return f"GPU {numbers} ({name})"


def _batch(found: Forecast) -> str:
    training = found.plan.trainer.training
    count = training.steps_per_generation
    pieces = "1 micro-batch" if count == 1 else f"{count:,} micro-batches"
    ranks = f" on each of {training.ranks} ranks" if training.ranks > 1 else ""
    rows = training.rows // count // training.ranks
    lengths = (
        f", prompts of up to {counted(found.prompt, 'token')} and completions of up to "
        f"{training.max_completion_length:,}"
    )
    return (
        f"{training.rows} completions, trained in {pieces} of {rows}{ranks} "
        f"(training.gradient_accumulation_steps = {training.accumulation_steps})"
        f"{lengths if found.on_cpu else ''}"
    )


def _sampling(found: Forecast) -> str:
    plan, rollout = found.plan, found.sampling
    kind = rollout.engine_kind
    parts = [f"{rollout.engine} in {plan.sampled_model.dtype}"]
    parts.append(counted(plan.num_shards, "shard"))
    if kind.memory_option is not None and any(found.placement.engines):
        share = rollout.engine_options.get(kind.memory_option, VLLM_SHARE)
        parts.append(f"{kind.memory_option} {share}")
    parts.append(f"weight_sync {rollout.weight_sync}")
    return ", ".join(parts)


def _card_lines(found: Forecast, cards: Sequence[Card]) -> Iterator[str]:
    card, plan = cards[0], found.plan
    name = card.name
    if len(cards) > 1:
        numbers = ", ".join(each.gpu.address for each in cards if each.gpu.address)
        each = f"GPU {numbers}, each " if numbers else f"{len(cards)} x "
        name = f"{each}{card.gpu.name}, {gib(card.gpu.memory)} GiB"
    yield _line("memory", name)
    if (one := card.training) is not None:
        length = found.prompt + plan.trainer.training.max_completion_length
        teacher = f"the teacher's {gib(one.teacher)}, " if one.teacher else ""
        yield _line(
            "  actor",
            f"weights {gib(one.weights)}, {teacher}gradients {gib(one.gradients)}, optimizer "
            f"{gib(one.optimizer)}, activations {gib(one.activations)}, logits {gib(one.logits)}, "
            + (
                f"a checkpoint's copy {gib(card.copy)}, the process {gib(PROCESS)} GiB"
                if card.is_machine
                else f"CUDA {gib(CONTEXT)} GiB"
            )
            + f" (sequences of {length:,} tokens)",
        )
    for engine in card.engines:
        fit = engine.tokens // (found.prompt + plan.max_tokens)
        yield _line(
            "  rollout",
            f"{gib(engine.reserved)} GiB: weights {gib(engine.weights)}, keys and values "
            f"{gib(engine.cache)} ({counted(fit, 'sequence')} of full length)",
        )
    if card.is_machine:
        yield _line("  others", f"{gib(BESIDE)} GiB: the flow, rewards, the Prefect server")
    yield _line("  in all", f"{gib(card.most)} GiB, {card.most / card.gpu.memory:.0%}")


def _line(what: str, text: str) -> str:
    return f"{what:<11}{text}".rstrip()
