"""What a reporter is: it shows a run's progress somewhere outside its own logs."""

import logging

logger = logging.getLogger(__name__)


class Reporter:
    """Shows a run's progress, and can hold the run back while nobody could see it; by default
    neither."""

    def say(self, line: str) -> None:
        """Show one line about the run. By default it is logged."""
        logger.info("%s", line)

    def tell(self) -> None:
        """Send the run's new notices to the people responsible for it."""

    @property
    def away(self) -> bool:
        """Whether nobody would receive a message now."""
        return False

    async def ready(self) -> None:
        """Return when another step may begin. Raises `ServerError` if the server is gone."""

    async def refresh(self) -> None:
        """Show the report that was just written to the run directory."""
