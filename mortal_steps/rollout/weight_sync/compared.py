"""Logs, once per worker, how many tensors of a version are compared with what was published.

An engine may hold tensors under other names or in another form than they were published in. It
cannot compare those; the log-probabilities of the probe are then their only proof.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from mortal_steps.store.tensor_layout import Layout

logger = logging.getLogger(__name__)


class Compared:
    """The count of one worker; it is the same for all versions."""

    def __init__(self) -> None:
        self._told = False

    def tell(self, found: Collection[str], layouts: Iterable[Layout]) -> None:
        """Log, at the first call, how many of the tensors in these files an engine has compared, by
        the names of these."""
        if self._told:
            return
        self._told = True
        sizes = {place.name: place.num_bytes for layout in layouts for place in layout.places}
        others = sorted(sizes.keys() - set(found))
        num_bytes = sum(sizes.values())
        compared_bytes = num_bytes - sum(sizes[name] for name in others)
        if not others:
            logger.info(
                "all %d tensors of a version (%s bytes) are compared with those published",
                *(len(sizes), f"{num_bytes:,}"),
            )
            return
        logger.warning(
            "%d of %d tensors of a version (%s of %s bytes) are compared with those published; the "
            "engine has the others by other names or in another form, and the probe's "
            "log-probabilities alone are their proof: %s%s",
            *(len(sizes) - len(others), len(sizes), f"{compared_bytes:,}", f"{num_bytes:,}"),
            others[0],
            f" and {len(others) - 1} more" if len(others) > 1 else "",
        )
