"""The shipped deployments as a person meets them: prefect.yaml, and the forms of the parameters."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from prefect.cli.deploy._models import PrefectYamlModel
from prefect.flows import load_flow_from_entrypoint
from prefect.utilities.callables import parameter_schema

from mortal.remote.deploy import POOLS
from mortal_flows.settings import settings
from mortal_steps import __version__
from mortal_steps.plan.loader import load_config
from mortal_steps.plan.run_config import RunConfig
from tests.support.paths import ROOT

SHIPPED = PrefectYamlModel.model_validate(
    yaml.safe_load((ROOT / "deployments/prefect.yaml").read_text())
)
DEPLOYMENTS = {deployment.name: deployment for deployment in SHIPPED.deployments}
TRAIN = ("local", "nightly", "modal")
each = pytest.mark.parametrize("deployment", DEPLOYMENTS.values(), ids=list(DEPLOYMENTS))


def form(name: str) -> dict[str, Any]:
    """What Prefect's form for a run of a deployment is made from."""
    flow = load_flow_from_entrypoint(DEPLOYMENTS[name].entrypoint)
    return parameter_schema(flow).model_dump_for_openapi()


@each
def test_its_parameters_are_those_of_its_flow(deployment):
    flow = load_flow_from_entrypoint(deployment.entrypoint)
    required = {"run_id": "some-run"} if deployment.name in ("resume", "promote") else {}
    flow.validate_parameters({**deployment.parameters, **required})


@each
def test_it_says_what_it_is_and_where_it_runs(deployment):
    of_its_own = deployment.name in ("promote", "recipe")
    assert flow_name(deployment) == (deployment.name if of_its_own else "grpo-train")
    assert deployment.version == __version__
    assert deployment.tags
    assert deployment.work_pool.name in POOLS
    assert "PREFECT_FLOWS_HEARTBEAT_FREQUENCY" in deployment.work_pool.job_variables["env"]
    for named in ("`overrides`", "`docs/"):
        assert named in deployment.description


def flow_name(deployment):
    return load_flow_from_entrypoint(deployment.entrypoint).name


@pytest.mark.parametrize("name", TRAIN)
def test_it_trains_the_demo_by_naming_its_file(name):
    """A configuration that is embedded here fills 25 screens of the form above its button."""
    parameters = DEPLOYMENTS[name].parameters
    assert "config" not in parameters
    assert load_config(ROOT / parameters["config_file"]).name == "demo"


def test_a_night_that_waited_for_long_is_skipped():
    nightly = DEPLOYMENTS["nightly"]
    assert nightly.schedules[0].cron
    assert nightly.concurrency_limit.limit == 1
    assert nightly.concurrency_limit.collision_strategy == "ENQUEUE"
    assert nightly.parameters["skip_after_min"] == 60


def test_overrides_of_one_run_change_a_deployments_configuration_there_alone():
    file = str(ROOT / DEPLOYMENTS["local"].parameters["config_file"])
    deployed = load_config(Path(file))
    chosen = settings(uuid4(), None, file, ["training.max_steps=20"])
    training = deployed.training.model_copy(update={"max_steps": 20})
    assert chosen == deployed.model_copy(update={"training": training, "run_id": chosen.run_id})


def test_a_run_of_the_deployment_modal_computes_there_whatever_is_trained(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\n')
    where = DEPLOYMENTS["modal"].parameters["backend"]
    chosen = settings(uuid4(), RunConfig(), str(file), ["training.max_steps=20"], where)
    assert (chosen.name, chosen.compute.backend) == ("mine", "modal")


@pytest.mark.parametrize(
    ("name", "first"),
    [("local", ["config_file", "overrides"]), ("resume", ["run_id", "overrides"])],
)
def test_what_a_person_changes_comes_first_in_the_form(name, first):
    properties = form(name)["properties"]
    assert sorted(properties, key=lambda key: properties[key]["position"])[:2] == first


def test_a_run_id_is_required_to_resume():
    assert form("resume")["required"] == ["run_id"]


@pytest.mark.parametrize("name", ["local", "resume"])
def test_every_field_of_the_form_has_a_description(name):
    assert not [key for key, field in fields(form(name)) if not field.get("description")]


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Those of the flow, and the keys of the configuration; a table is described where it is
    defined."""
    for table, defined in {"": schema, **schema["definitions"]}.items():
        for key, field in defined["properties"].items():
            referred = field.get("$ref", "").rpartition("/")[2]
            yield f"{table}.{key}", schema["definitions"][referred] if referred else field
