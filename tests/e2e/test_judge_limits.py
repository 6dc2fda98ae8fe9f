"""The limits of a judge are those of all runs of a Prefect server."""

import httpx
import pytest

from mortal_steps.rewards.judge.limits import Allowed, Clock, NoRoomError
from mortal_steps.rewards.judge.shared_limits import Orchestrator, SharedLimits


def test_two_runs_share_one_limit_and_a_place_is_given_back(server):
    orchestrator = Orchestrator(api_url=server.api_url, headers={})

    def run(model, **allowed):
        return SharedLimits(
            Allowed(**allowed), Clock(), orchestrator, model=model, base_url="http://h/v1"
        )

    def goes(limits, tokens=1):
        try:
            with limits.permit(tokens, until=limits.clock.now() + 0.5):
                return True
        except NoRoomError:
            return False

    one, other = (run("places", concurrency=1) for _ in range(2))
    with one.permit(1, until=one.clock.now() + 0.5):
        until = other.clock.now() + 0.5
        told = pytest.raises(NoRoomError, match="mortal-judge places at h concurrency")
        with told, other.permit(1, until):
            pass
    assert goes(other), "the first one has given its place back"

    one, other = (run("requests", requests_per_minute=6) for _ in range(2))
    assert [goes(one), goes(other), goes(one), goes(other)] == [True, True, True, False]

    one, other = (run("tokens", tokens_per_minute=1000) for _ in range(2))
    assert [goes(one, 400), goes(other, 400)] == [True, False]
    assert goes(other, 50)

    less = {"name": "mortal-judge less at h tokens", "limit": 10, "slot_decay_per_second": 0.1}
    httpx.post(f"{server.api_url}/v2/concurrency_limits/", json=less).raise_for_status()
    limits = run("less", tokens_per_minute=1000)
    assert [goes(limits, 400), goes(limits, 400)] == [True, False], "what is set there holds"

    made = httpx.post(f"{server.api_url}/v2/concurrency_limits/filter", json={}).json()
    rates = {limit["name"]: limit["slot_decay_per_second"] for limit in made}
    assert rates["mortal-judge requests at h requests"] == pytest.approx(3 / 60)
    assert rates["mortal-judge tokens at h tokens"] == pytest.approx(500 / 60)
