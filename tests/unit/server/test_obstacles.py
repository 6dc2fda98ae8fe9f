"""Why no flow run of a deployment begins."""

import pytest

from mortal.server.obstacles import obstacle

DEPLOYMENT = {"name": "nightly", "global_concurrency_limit": {"limit": 1}}
POOL = {"name": "local", "is_paused": False, "concurrency_limit": None}
QUEUE = {"name": "default", "is_paused": False, "concurrency_limit": 2}


def test_nothing_is_in_the_way():
    assert obstacle(DEPLOYMENT, POOL, QUEUE) is None
    assert obstacle({"global_concurrency_limit": None}, None, None) is None, "mortal schedule"


@pytest.mark.parametrize(
    ("deployment", "pool", "queue", "told"),
    [
        ({"global_concurrency_limit": {"limit": 0}}, {}, {}, "the deployment's concurrency limit"),
        ({}, {"is_paused": True}, {}, "`prefect work-pool resume local`"),
        ({}, {"concurrency_limit": 0}, {}, "`prefect work-pool clear-concurrency-limit local`"),
        ({}, {}, {"is_paused": True}, "`prefect work-queue resume default --pool local`"),
        (
            {},
            {},
            {"concurrency_limit": 0},
            "`prefect work-queue clear-concurrency-limit default --pool local`",
        ),
    ],
)
def test_what_is_in_the_way_is_told_with_its_remedy(deployment, pool, queue, told):
    said = obstacle(DEPLOYMENT | deployment, POOL | pool, QUEUE | queue)
    assert said is not None and told in said
