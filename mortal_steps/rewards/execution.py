"""The lanes of this process, which all reward environments share."""

from __future__ import annotations

import threading

from mortal_steps.config.rewards import SandboxSettings
from mortal_steps.sandbox.box import Way
from mortal_steps.sandbox.levels import way_to_run
from mortal_steps.sandbox.pool import Pool

_settings = SandboxSettings()
_pools: dict[Way, Pool] = {}
_ways: dict[bool, Way] = {}
"""How lanes are started, without and with leave to go unisolated: the same to the process's end."""
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
    allowed = allow_unisolated or _settings.allow_unisolated
    with _making:
        if allowed not in _ways:
            _ways[allowed] = way_to_run(allow_unisolated=allowed)
        way = _ways[allowed]
        if way not in _pools:
            _pools[way] = Pool(way, _settings.lanes)
        return _pools[way]
