"""Models that call tools, beside stock TRL's own tool loop: the same bits?

Stock `GRPOTrainer(tools=..., environment_factory=...).train()`, of which only the sampling of a
turn is replaced by an engine with a run's seeds, and MORTAL's workers on the same rows. Compared
without tolerance: prompts, their ids, what was sampled and answered with its mask, messages,
rewards, weights after each optimizer update, and every metric.
"""

import contextlib
import io
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.environments.cases import Case
from tests.support.environments.parity import both, differences


@dataclass(kw_only=True)
class Compared:
    """A case, and what differed."""

    name: str
    case: Case
    calls: int = 0
    updates: int = 0
    different: list[str] = field(default_factory=list)
    failed: str | None = None

    @property
    def outcome(self) -> str:
        """`equal`, `different` or `failed`."""
        return "failed" if self.failed else "different" if self.different else "equal"

    def __str__(self) -> str:
        return (
            f"{self.name:12} {self.case.family:22} {self.calls:3} calls {self.updates:3} updates  "
            f"{self.failed or self.outcome}"
        )


def compare(name: str, case: Case) -> Compared:
    """Make a case run by both, and say what differs."""
    found = Compared(name=name, case=case)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="tool-parity-") as folder,
            contextlib.redirect_stdout(io.StringIO()),
        ):
            stock, ours = both(case, Path(folder))
    except Exception as error:  # noqa: BLE001 - one case that fails ends no others
        found.failed = f"{type(error).__name__}: {error}"
        return found
    found.different = differences(stock, ours)
    found.calls, found.updates = stock.num_calls, len(stock.weights)
    return found
