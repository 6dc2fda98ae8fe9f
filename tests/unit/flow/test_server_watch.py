"""mortal_tasks.server_watch where the server's answers contradict each other."""

from types import SimpleNamespace
from uuid import uuid4

from prefect.exceptions import ObjectNotFound
from prefect.logging import disable_run_logger
from prefect.states import Crashed

from mortal_tasks.server_watch import ServerWatch


class Deleting:
    """A client whose flow run is deleted just after it was read."""

    async def api_healthcheck(self):
        return None

    async def read_flow_run(self, flow_run_id):
        return SimpleNamespace(state=Crashed(), deployment_id=None)

    async def set_flow_run_state(self, *_, force):
        raise ObjectNotFound(KeyError("no such flow run"))


async def test_a_flow_run_that_is_deleted_while_it_is_looked_at_ends_no_run():
    watch = ServerWatch(Deleting(), uuid4(), 60, print)
    with disable_run_logger():
        assert not await watch._answers(), "the next look tells"
