"""The deployment `promote`, as Prefect reads it."""

import pytest
import yaml
from prefect.events import DeploymentEventTrigger
from prefect.flows import load_flow_from_entrypoint
from pydantic import ValidationError

from mortal_flows.promote import Approval
from tests.support.paths import ROOT


@pytest.fixture
def shipped():
    found = yaml.safe_load((ROOT / "deployments/prefect.yaml").read_text())["deployments"]
    return next(deployment for deployment in found if deployment["name"] == "promote")


def test_it_needs_a_run_and_nothing_else(shipped):
    flow = load_flow_from_entrypoint(shipped["entrypoint"])
    chosen = flow.validate_parameters({**shipped.get("parameters", {}), "run_id": "some-run"})
    assert (chosen["approval"], chosen["min_gain"]) == ("person", 0.0)
    fields = flow.parameters.properties
    assert flow.parameters.required == ["run_id"]
    assert not [name for name, field in fields.items() if not field.get("description")]


def test_its_trigger_takes_the_run_from_the_event_and_is_off_until_somebody_wants_it(shipped):
    trigger = DeploymentEventTrigger.model_validate(shipped["triggers"][0])
    assert not trigger.enabled
    assert trigger.expect == {"mortal.run.finished"}
    assert trigger.parameters == {"run_id": "{{ event.payload.run_id }}"}


def test_who_approves_says_so_and_by_what_name():
    with pytest.raises(ValidationError):
        Approval()
    with pytest.raises(ValidationError):
        Approval(decision="perhaps", by="Ada")
    assert Approval(decision="refuse", by="Ada").why == ""
