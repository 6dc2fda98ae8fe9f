"""The lanes of this process, which all reward environments share."""

from __future__ import annotations

import threading

from mortal_steps.config.rewards import SandboxSettings
from mortal_steps.sandbox.box import Way
from mortal_steps.sandbox.levels import way_to_run
from mortal_steps.sandbox.pool import Pool

_settings = SandboxSettings()
_pools: dict[Way, Pool] = {}
_making = threading.Lock()


def use_settings(settings: SandboxSettings) -> None:
    """What `[rewards.sandbox]` says, for this process."""
    global _settings
    _settings = settings


def shared_pool(*, allow_unisolated: bool = False) -> Pool:
    """Made at the first call, and ended with this process.

    Raises `NoIsolationError` where programs cannot be shut in, unless the settings or the argument
    allow to go without.
    """
    way = way_to_run(allow_unisolated=allow_unisolated or _settings.allow_unisolated)
    with _making:
        if way not in _pools:
            _pools[way] = Pool(way, _settings.lanes)
        return _pools[way]
