"""Registers Prefect's block types after the server has been running for a while.

Prefect itself does this before its server answers. With a new database it takes about 3 s of CPU
time, and no run needs it: saving a block registers its type, and the list of types is only for
people who make a block on Prefect's pages.

Importing this module imports Prefect, which then reads its settings.
"""

from __future__ import annotations

import asyncio

from prefect.logging import get_logger
from prefect.server.api.server import _memoize_block_auto_registration
from prefect.server.database import provide_database_interface
from prefect.server.models.block_registration import run_block_auto_registration
from prefect.settings import PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION, temporary_settings

AFTER_S = 30.0
"""Seconds to wait, so that the first steps of a run are not slowed down."""


async def register_block_types(after_s: float = AFTER_S) -> None:
    """Register the block types after `after_s` seconds, unless that was done before. An error is
    logged, and the next server tries again."""
    await asyncio.sleep(after_s)
    try:
        with temporary_settings({PREFECT_MEMOIZE_BLOCK_AUTO_REGISTRATION: True}):
            await _register()
    except Exception:  # noqa: BLE001 - the boundary of a task that nobody awaits
        get_logger("server").exception("the block types could not be registered")


@_memoize_block_auto_registration
async def _register() -> None:
    async with await provide_database_interface().session() as session:
        await run_block_auto_registration(session=session)
