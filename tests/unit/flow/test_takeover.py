"""A flow run that comes back where its run is not."""

from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun

from mortal_flows.deployed import check_begun_here, drives
from mortal_steps.errors import StoreError
from mortal_steps.store.identity import IDENTITY_FILE


def flow_run(count: int, *tags: str) -> FlowRun:
    return FlowRun(flow_id=uuid4(), run_count=count, tags=list(tags))


def test_a_run_does_not_begin_again_on_a_disk_that_is_not_mounted(tmp_path):
    begun = flow_run(2, "train", "run:demo-1")
    with pytest.raises(StoreError, match=r"demo-1, which is not in .*not mounted"):
        check_begun_here(tmp_path, "demo-1", begun)
    (tmp_path / "demo-1").mkdir()
    (tmp_path / "demo-1" / IDENTITY_FILE).touch()
    check_begun_here(tmp_path, "demo-1", begun)


@pytest.mark.parametrize("before", [flow_run(1, "run:demo-2"), flow_run(2), flow_run(2, "run:a")])
def test_a_flow_run_that_began_none_begins_one(tmp_path, before):
    """A copy of another flow run has its tags; one may have died before it began its run."""
    check_begun_here(tmp_path, "demo-2", before)


def test_a_driver_is_known_by_its_flow_run_and_not_by_the_address_of_its_server():
    """Two workers may know one server by two addresses; a server may move to another port."""
    here, other = str(uuid4()), str(uuid4())
    for server in ("http://127.0.0.1:4200", "http://localhost:4200", "https://prefect.example"):
        assert drives(f"{server}/runs/flow-run/{here}", here)
        assert not drives(f"{server}/runs/flow-run/{other}", here)
    assert not drives(None, here)
