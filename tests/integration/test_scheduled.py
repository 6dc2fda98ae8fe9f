"""The deployments that `mortal schedule` makes."""

import pytest

from mortal.server.scheduled import cron_schedule, scheduled_deployments
from mortal_flows.grpo_resume import grpo_resume
from mortal_flows.grpo_train import grpo_train
from mortal_steps.config.loader import load_config
from mortal_steps.errors import ConfigError
from tests.support.paths import ROOT

CONFIG = load_config(ROOT / "deployments/configs/demo.toml", ["training.max_steps=20"])


def test_a_scheduled_run_trains_what_the_file_and_the_overrides_say():
    train, resume = scheduled_deployments(CONFIG, "demo", None)
    assert (train.name, resume.name) == ("demo", "demo-resume")
    assert grpo_train.validate_parameters(train.parameters)["config"] == CONFIG
    assert "skip_after_min" not in train.parameters
    assert train.schedules == []
    grpo_resume.validate_parameters({**resume.parameters, "run_id": "demo-1"})


def test_scheduled_nights_never_queue():
    train, _ = scheduled_deployments(CONFIG, "demo", cron_schedule("0 3 * * *", "Europe/Berlin"))
    when = train.schedules[0].schedule
    assert (when.cron, when.timezone) == ("0 3 * * *", "Europe/Berlin")
    assert train.concurrency_limit == 1
    assert train.concurrency_options.collision_strategy == "CANCEL_NEW"
    assert train.parameters["skip_after_min"] == 60


@pytest.mark.parametrize(("cron", "timezone"), [("0 3 * *", "UTC"), ("0 3 * * *", "Mars")])
def test_a_schedule_that_is_none_is_refused(cron, timezone):
    with pytest.raises(ConfigError, match=r"--cron .* --timezone .*Invalid"):
        cron_schedule(cron, timezone)
