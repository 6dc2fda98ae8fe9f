"""A forecast in words, for `mortal train --dry-run`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence

from mortal_steps.compute.devices import Gpu
from mortal_steps.compute.memory import CONTEXT
from mortal_steps.compute.placement import Placement
from mortal_steps.config import TrainingConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.forecast import VLLM_SHARE, Card, Forecast, gib, rows_per_shard
from mortal_steps.report.units import counted

logger = logging.getLogger(__name__)

VLLM_SEQUENCES = 256
"""Sequences that vLLM samples at once by default, at least."""
FULL = 0.9
"""Part of a card above which a warning is due: what CUDA's allocator cannot use comes on top."""


def report_forecast(found: Forecast, show: Callable[[str], None] | None) -> tuple[str, ...]:
    """Show the lines of a forecast or, where nobody is shown them, log and return its warnings.

    Raises what `warnings_of` raises.
    """
    if show is None:
        for warning in (warnings := warnings_of(found)):
            logger.warning("%s", warning)
        return warnings
    for line in lines_of(found):
        show(line)
    return ()


def lines_of(found: Forecast) -> Iterator[str]:
    """Yield the forecast for a user; raises what `warnings_of` raises."""
    warnings = warnings_of(found)
    yield _line("placement", placement_in_words(found.placement))
    yield _line("batch", _batch(found.config.training))
    if found.placement.engines:
        yield _line("sampling", _sampling(found))
    alike: dict[tuple[object, ...], list[Card]] = {}
    for card in found.cards:
        alike.setdefault((card.gpu.name, card.training, tuple(card.engines)), []).append(card)
    for cards in alike.values():
        yield from _card_lines(found, cards)
    for warning in warnings:
        yield _line("warning", warning)


def placement_in_words(found: Placement) -> str:
    """Such as `actor on GPU 0 (NVIDIA A10G), 1 rollout worker on GPU 1 (NVIDIA A10G)`."""
    count = len(found.engines)
    workers = counted(count, "rollout worker")
    actor = _named([found.actor] if found.actor else [])
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


def _batch(training: TrainingConfig) -> str:
    count = training.steps_per_generation
    pieces = "1 micro-batch" if count == 1 else f"{count:,} micro-batches"
    return (
        f"{training.rows} completions, trained in {pieces} of {training.rows // count} "
        f"(training.gradient_accumulation_steps = {training.accumulation_steps})"
    )


def _sampling(found: Forecast) -> str:
    config, rollout = found.placed, found.placed.rollout
    kind = rollout.engine_kind
    parts = [f"{rollout.engine} in {config.sampled_model.dtype}"]
    parts.append(counted(config.num_shards, "shard"))
    if kind.memory_option is not None and any(found.placement.engines):
        share = rollout.engine_options.get(kind.memory_option, VLLM_SHARE)
        parts.append(f"{kind.memory_option} {share}")
    parts.append(f"weight_sync {rollout.weight_sync}")
    return ", ".join(parts)


def _card_lines(found: Forecast, cards: Sequence[Card]) -> Iterator[str]:
    card, config = cards[0], found.config
    name = card.name
    if len(cards) > 1:
        numbers = ", ".join(each.gpu.address for each in cards if each.gpu.address)
        each = f"GPU {numbers}, each " if numbers else f"{len(cards)} x "
        name = f"{each}{card.gpu.name}, {gib(card.gpu.memory)} GiB"
    yield _line("memory", name)
    if (one := card.training) is not None:
        length = found.prompt + config.training.max_completion_length
        yield _line(
            "  actor",
            f"weights {gib(one.weights)}, gradients {gib(one.gradients)}, optimizer "
            f"{gib(one.optimizer)}, activations {gib(one.activations)}, logits {gib(one.logits)}, "
            f"CUDA {gib(CONTEXT)} GiB (sequences of {length:,} tokens)",
        )
    for engine in card.engines:
        fit = engine.tokens // (found.prompt + config.max_tokens)
        yield _line(
            "  rollout",
            f"{gib(engine.reserved)} GiB: weights {gib(engine.weights)}, keys and values "
            f"{gib(engine.cache)} ({counted(fit, 'sequence')} of full length)",
        )
    yield _line("  in all", f"{gib(card.most)} GiB, {card.most / card.gpu.memory:.0%}")


def _line(what: str, text: str) -> str:
    return f"{what:<11}{text}".rstrip()


def warnings_of(found: Forecast) -> tuple[str, ...]:
    """Return a sentence for each card that is nearly full, with the settings that need less.

    Raises `ConfigError` for a card that is too small whatever the batch; where the size of the
    model is a guess, that is a warning as well.
    """
    warnings: list[str] = []
    for card in _different(found.cards):
        if card.static > card.gpu.memory:
            problem = (
                f"{card.name}: {_static_in_words(card)}, which it does not have. "
                f"{_what_helps(found, card)}"
            )
            if found.shape is not None and found.shape.counted:
                raise ConfigError(problem)
            warnings.append(
                f"{problem}. This is a guess: the model's parameters could not be counted here"
            )
            continue
        warnings += _preempting(found, card)
        if card.depends_on_batch and card.most > FULL * card.gpu.memory:
            warnings.append(
                f"{card.name}: the longest batch may take {gib(card.most)} GiB of it, and more "
                f"than {FULL:.0%} may not be usable. {_what_helps(found, card)}"
            )
    if found.placement.gpus and found.shape is None:
        warnings.append(
            "the memory that the run needs is not known: the model's config.json is not here, or "
            "does not use the usual names"
        )
    return tuple(warnings)


def _static_in_words(card: Card) -> str:
    parts = []
    if card.training is not None:
        parts.append(f"weights, gradients and optimizer take {gib(card.training.static)} GiB")
    if card.engines:
        taken = sum(engine.fixed for engine in card.engines)
        parts.append(f"{counted(len(card.engines), 'rollout worker')} {gib(taken)} GiB")
    return " and ".join(parts)


def _preempting(found: Forecast, card: Card) -> Iterator[str]:
    """Warn of an engine that cannot hold all sequences that it samples at once."""
    config = found.config
    if config.rollout.engine_kind.memory_option is None:
        return
    at_once = config.rollout.engine_options.get("max_num_seqs", VLLM_SEQUENCES)
    if not isinstance(at_once, int):
        return  # given in a way that the engine alone knows
    sequences = min(rows_per_shard(config), at_once)
    for engine in dict.fromkeys(card.engines):
        fit = engine.tokens // (found.prompt + config.max_tokens)
        if fit < sequences:
            fewer = f"rollout.engine_options.max_num_seqs = {fit}, " if fit else ""
            yield (
                f"{card.name}: {config.rollout.engine} has room for {fit} of the {sequences} "
                "sequences of full length that it samples at once. It preempts some that grow as "
                "long, and a shard that is sampled again may then differ. Set "
                f"{fewer}a lower rollout.max_tokens, or more memory"
            )


def _what_helps(found: Forecast, card: Card) -> str:
    """Name the settings with which less of a card is taken, the cheapest first."""
    config, kind = found.config, found.config.rollout.engine_kind
    settings = []
    if card.engines and kind.memory_option is not None and found.placement.shares:
        settings.append(f"a lower rollout.engine_options.{kind.memory_option}")
        if kind.sleeps and not config.rollout.staleness and config.compute.backend == "local":
            settings.append("rollout.sleep_while_training = true")
    if card.engines and kind.memory_option is None:  # its keys and values are those of a shard
        settings.append("a higher rollout.num_shards")
    if card.training is not None:
        if not config.training.gradient_checkpointing:
            settings.append("training.gradient_checkpointing = true")
        if card.depends_on_batch:
            settings.append("a higher training.gradient_accumulation_steps")
            settings.append("a lower training.max_completion_length")
        if not config.training.use_lora:
            settings.append("training.use_lora = true")
        if config.model.dtype == "float32":
            settings.append('model.dtype = "bfloat16" with training.use_lora')
    larger = f"a GPU with {gib(card.most / FULL)} GiB"
    return f"What needs less: {', '.join(settings)}; or {larger}"


def _different(cards: Sequence[Card]) -> list[Card]:
    """One of each kind."""
    found = {(card.gpu.name, card.static, card.most): card for card in reversed(cards)}
    return list(reversed(found.values()))
