"""Who is told how a run goes, beside its own logs."""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


class Reporter:
    """Hears of a run's progress, and may hold it back: an orchestrator that is out of reach.

    What has a default tells nobody and never holds back.
    """

    def say(self, line: str) -> None:
        """One line for whoever watches the run. By default it is logged."""
        logger.info("%s", line)

    def tell(self) -> None:
        """Tell whoever is responsible for the run what is new in its notices."""

    @property
    def away(self) -> bool:
        """Whether nobody would hear at present."""
        return False

    async def ready(self) -> None:
        """Return when the run may take another step. Raises `ServerError`: gone for good."""

    async def refresh(self) -> None:
        """Show the report that was just written into the run directory."""


class LogReporter(Reporter):
    """A run that reports to its log alone."""
