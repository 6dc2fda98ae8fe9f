"""The model that a LoRA adapter is added to, as the adapter's files name it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class AdapterBase:
    """The model that an adapter belongs to."""

    name: str
    """Its name on the hub, or the absolute path of a local folder."""
    revision: str | None = None
    """Commit, branch or tag of a hub model."""
