"""Modal: what a run needs there, and which GPUs it rents."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Collection
from pathlib import Path

from mortal_steps.compute.base import Role
from mortal_steps.compute.placement import Placement
from mortal_steps.compute.pool import Compute
from mortal_steps.errors import ConfigError
from mortal_steps.places.base import Place, WantedWorkers
from mortal_steps.places.modal.gpus import gpus_on_modal
from mortal_steps.rollout.engines.table import ENGINES
from mortal_steps.store import RunStore
from mortal_steps.system.threads import call_in_thread

logger = logging.getLogger(__name__)


class ModalPlace(Place):
    """Containers of a deployed app. Modal's client is imported where it is used: of a run
    elsewhere, this is asked, too."""

    @contextlib.asynccontextmanager
    async def workers(self, wanted: WantedWorkers) -> AsyncIterator[Compute]:
        from mortal_steps.places.modal.compute import modal_compute

        beside = wanted.here({"reward": wanted.specs["reward"]})
        try:
            async with modal_compute(wanted.run, beside, wanted.on_stop) as compute:
                wanted.run.read_again()  # another machine may have gone on with it until now
                yield compute
        finally:
            await beside.close()

    def check(self, *, samples: bool) -> None:
        plan = self.plan
        plan.compute.check_mode()
        self.placement(samples=samples)
        if plan.is_quantized:
            raise ConfigError(
                "model.quantization: the image of containers on Modal has no bitsandbytes; train "
                "on a machine of your own (compute.backend = 'local'), or leave it out"
            )
        if not samples or plan.compute.modal.environment is None:
            return
        if not plan.environment.is_used:
            logger.warning(
                "[compute.modal.environment] has no effect: [environment] names neither tools nor "
                "an environment"
            )
        elif plan.environment.python is not None:
            logger.warning("environment.python has no effect beside [compute.modal.environment]")

    def check_access(self, say: Callable[[str], None]) -> None:
        from mortal_steps.places.modal.deployed import check_deployed
        from mortal_steps.places.modal.detached import code_of
        from mortal_steps.places.modal.meter import check_prices

        say("checking what is deployed on Modal")
        check_prices(self.plan.compute)
        code_of(self.plan)
        call_in_thread(asyncio.run, check_deployed(self.plan))

    def check_interpreters(self, roles: Collection[Role]) -> None:
        """Images hold them."""

    def default_engine(self) -> str:
        return next(name for name, kind in ENGINES.items() if kind.modal_class)

    def placement(self, *, samples: bool = True) -> Placement:
        return gpus_on_modal(self.plan, samples=samples)

    def fetch(self, root: Path) -> None:
        fetch(self.plan.compute.modal.volume, root)


def fetch(volume: str, root: Path) -> bool:
    """Download a run from a Volume; returns whether it is there."""
    from mortal_steps.places.modal.files import volume_runs
    from mortal_steps.places.modal.files.volume import RunsVolume

    download = volume_runs.download_run(RunsVolume(volume), RunStore(root))
    is_there: bool = call_in_thread(asyncio.run, download)
    return is_there
