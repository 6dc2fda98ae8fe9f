"""Loading a published policy version, and proof that the engine really computes with it.

Three checks guard against sampling with other weights than those asked for, which no metric shows:

1. The folder: every file has the digest that was recorded when the version was published. It is
   hashed beside loading, unless all tensors in it are compared.
2. The tensors: those that the engine holds have the digests of those that the actor had
   (`Engine.compare`), however little the log-probabilities differ.
3. The canary: the engine's logprobs of a fixed probe equal the actor's, written beside the weights.
   Their mean difference decides. Where every tensor has been compared, a single token that is
   farther off is a matter of rounding, and only logged; elsewhere, it is refused.

    probe.json  {"token_ids": [5, 6, 7, 30], "logprobs": [-4.1, -3.9, -2.2],
                 "tensors": {"model.norm.weight": "bfloat16:9f0c...", ...}}
                 logprobs[i] belongs to token_ids[i + 1], at temperature 1
"""

import json
import logging
import math
import statistics
from pathlib import Path

from mortal_steps.config.rollout import HALF_PRECISION_MEAN, HALF_PRECISION_TOLERANCE
from mortal_steps.errors import CorruptFileError, WeightsMismatchError
from mortal_steps.rollout.engines.base import Engine
from mortal_steps.rollout.engines.model_files import is_adapter, names_by_file
from mortal_steps.rollout.weight_sync.base import WeightSync
from mortal_steps.rollout.weight_sync.published import PublishedTensors, check_loaded
from mortal_steps.store import RunStore
from mortal_steps.types import WeightsRef

logger = logging.getLogger(__name__)

PROBE_FILE = "probe.json"


def load_weights(
    store: RunStore, engine: Engine, sync: WeightSync, weights: WeightsRef, tolerance: float
) -> list[str]:
    """Make the engine hold `weights`, which it takes by `sync`; whatever is raised, what it holds
    then must not be sampled with, and another version may be loaded.

    Returns the names of a model's tensors that the canary alone speaks for. Raises
    `CorruptFileError` for a folder that is not what was published, `EngineError` for one that the
    engine cannot load, `WeightsMismatchError` if the canary fails.
    """
    files = names_by_file(store.path(weights.path))
    with store.verifying_folder(weights.path, weights.sha256, but=files) as folder:
        engine.check(folder)
        sync.load(engine, folder)
        published = published_in(folder)
        found = engine.compare(published)
        check_loaded(found, str(folder))
    others = sorted(frozenset().union(*files.values()) - found.keys())
    if others:
        store.verify_folder(weights.path, weights.sha256)
    proven = (bool(files) and not others) or published.is_whole
    check_probe(engine, folder, tolerance, proven=proven)
    return [] if is_adapter(folder) else others


def log_compared(others: list[str], *, before: list[str] | None) -> list[str]:
    """Log, once, which tensors the canary alone vouches for; returns them."""
    if others and others != before:
        logger.warning(
            "%d tensors of a version are not compared with those published, since the engine has "
            "them by other names or in another form: the probe's log-probabilities alone are their "
            "proof (%s%s)",
            *(len(others), others[0], ", ..." if len(others) > 1 else ""),
        )
    elif others != before:
        logger.info("all tensors of a version are compared with those published")
    return others


def published_in(folder: Path) -> PublishedTensors:
    """Return a version's tensors; a damaged probe has no digests."""
    try:
        digests = dict(json.loads((folder / PROBE_FILE).read_bytes())["tensors"])
    except (OSError, ValueError, KeyError, TypeError):
        digests = {}
    return PublishedTensors(folder=folder, digests=digests)


def check_probe(engine: Engine, folder: Path, tolerance: float, *, proven: bool) -> None:
    """Raise `WeightsMismatchError` unless the engine scores the probe as the actor did, within
    `tolerance` nats, `CorruptFileError` without a probe. `proven`: all tensors were compared."""
    token_ids, expected = _read_probe(folder / PROBE_FILE)
    if not all(map(math.isfinite, expected)):
        raise WeightsMismatchError(
            f"the actor's own logprobs of the probe are not finite in {folder}: its weights have "
            "diverged. Fork the run at a checkpoint before that version (`mortal fork`), with a "
            "lower training.learning_rate or training.trl.max_grad_norm"
        )
    is_half = engine.dtype != "float32"
    mean_allowed = max(tolerance, HALF_PRECISION_MEAN) if is_half else tolerance
    allowed = max(tolerance, HALF_PRECISION_TOLERANCE) if is_half else tolerance
    differences = [
        abs(ours - theirs) for ours, theirs in zip(engine.score(token_ids), expected, strict=True)
    ]
    # Written so that a NaN counts as a mismatch.
    are_near = all(
        # A number is rounded in proportion to its size.
        difference <= allowed * max(1.0, -logprob)
        for difference, logprob in zip(differences, expected, strict=True)
    )
    mean, largest = statistics.fmean(differences), max(differences)
    if not mean <= mean_allowed or not (are_near or proven):
        raise WeightsMismatchError(
            f"the engine does not compute with the weights of {folder}: its logprobs of the probe "
            f"differ from the actor's by {mean:.3g} nats on average, allowed {mean_allowed:g}, and "
            f"by up to {largest:.3g} (rollout.canary_tolerance). Try another rollout.weight_sync; "
            "or, if the two compute in different precision, continue with a wider tolerance: "
            "`mortal resume RUN --set rollout.canary_tolerance=...`"
        )
    if not are_near:
        logger.warning(
            "the engine's logprobs of the probe differ from the actor's by up to %.3g nats in %s, "
            "and by %.3g on average (at most %g): this is rounding, since every tensor is the one "
            "that was published",
            *(largest, folder, mean, mean_allowed),
        )


def _read_probe(path: Path) -> tuple[list[int], list[float]]:
    try:
        probe = json.loads(path.read_bytes())
        token_ids, logprobs = list(probe["token_ids"]), list(probe["logprobs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CorruptFileError(f"{path} is no probe: {error!r}") from None
    if len(logprobs) != len(token_ids) - 1 or not logprobs:
        raise CorruptFileError(
            f"{path} is no probe: {len(token_ids)} tokens with {len(logprobs)} logprobs"
        )
    return token_ids, logprobs
