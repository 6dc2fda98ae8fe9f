"""What containers reserve and where they run: from the configuration to Modal."""

import pytest

from mortal_steps.errors import ConfigError
from mortal_steps.places.modal.deployed import for_trial, worker_of
from mortal_steps.places.modal.detached import for_run
from tests.support.modal.project import ON_MODAL, project


def reserved(function):
    """GPU, cores and MiB of a function as Modal has it."""
    resources = function["resources"]
    gpu = resources.get("gpu_config", {}).get("gpu_type")
    return gpu, resources["milli_cpu"] / 1000, resources["memory_mb"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("ActorWorker.*", ("A100-80GB", 8.0, 16384)),
        ("RolloutWorker.*", ("A10", 4.0, 16384)),
        ("TransformersRolloutWorker.*", ("A10", 4.0, 16384)),
        ("SingleNodeWorker.*", ("A100-80GB", 8.0, 32768)),
        ("RewardWorker.*", (None, 1.0, 1024)),
        ("VllmRewardWorker.*", (None, 1.0, 1024)),
        ("orchestrate", (None, 2.0, 4096)),
    ],
)
def test_what_is_deployed_reserves_cores_and_memory(plane, name, expected):
    functions = plane.state()["functions"].values()
    found = [one for one in functions if one["function_name"] == name and one["app_id"]]
    assert reserved(found[0]) == expected


CHOSEN = (
    *("compute.modal.actor_cpu=12", "compute.modal.actor_memory_mb=65536"),
    *("compute.modal.rollout_cpu=6", "compute.modal.rollout_memory_mb=40960"),
    *("compute.modal.reward_memory_mb=2048", "compute.modal.region=us-east"),
)


def bound(plane, worker):
    """The worker's function as Modal has it; no container starts for that."""
    method = worker.call
    method.hydrate()
    return plane.state()["functions"][method.object_id]


@pytest.mark.parametrize(
    ("role", "mode", "expected"),
    [
        ("actor", (), ("A100-80GB", 12.0, 65536)),
        ("rollout", (), ("A10", 6.0, 40960)),
        ("reward", (), (None, 1.0, 2048)),
        ("actor", ("compute.mode=single_node",), ("A100-80GB", 12.0, 65536 + 40960)),
    ],
)
def test_every_worker_of_a_run_has_what_is_configured_in_one_region(
    plane, tmp_path, role, mode, expected
):
    config = project(tmp_path, "reserved", *ON_MODAL, *CHOSEN, *mode)
    function = bound(plane, worker_of(config.compute, config.rollout, role, "reserved", 0))
    assert reserved(function) == expected
    assert function["scheduler_placement"]["regions"] == ["us-east"]


@pytest.mark.parametrize(
    ("engine", "name"), [(None, "RewardWorker.*"), ("vllm", "VllmRewardWorker.*")]
)
def test_reward_workers_have_the_image_with_the_engine_of_teachers(plane, tmp_path, engine, name):
    config = project(tmp_path, "taught", *ON_MODAL)
    options = {"scores_with": engine}
    worker = worker_of(config.compute, config.rollout, "reward", "taught", 0, **options)
    assert bound(plane, worker)["function_name"] == name


def test_without_a_region_modal_chooses_one(plane, tmp_path):
    config = project(tmp_path, "anywhere", *ON_MODAL)
    function = bound(plane, worker_of(config.compute, config.rollout, "actor", "anywhere", 0))
    assert "regions" not in function.get("scheduler_placement", {})


def test_the_flow_of_a_detached_run_is_in_the_region_of_its_workers(plane, tmp_path):
    import modal

    config = project(tmp_path, "detached", *ON_MODAL, *CHOSEN)
    function = for_run(modal.Function.from_name("mortal", "orchestrate"), config.compute.modal)
    function.hydrate()
    found = plane.state()["functions"][function.object_id]
    assert found["scheduler_placement"]["regions"] == ["us-east"]


def test_a_trial_has_what_a_rollout_worker_has(plane, tmp_path):
    """The run's secrets above all: a gated model is not read without."""
    import modal

    modal.Secret.objects.create("trial", {"HF_TOKEN": "a token"}, allow_existing=True)
    config = project(tmp_path, "tried", *ON_MODAL, *CHOSEN, 'compute.modal.secrets=["trial"]')
    samples = {"transformers": modal.Function.from_name("mortal", "sample_with_transformers")}
    rollout = config.rollout.model_copy(update={"engine": "transformers"})
    function = for_trial(samples, config.compute, rollout)
    function.hydrate()
    found = plane.state()["functions"][function.object_id]
    assert reserved(found) == ("A10", 6.0, 40960)
    assert found["scheduler_placement"]["regions"] == ["us-east"]
    secret = modal.Secret.from_name("trial")
    secret.hydrate()
    assert secret.object_id in found["secret_ids"]


def test_an_engine_that_no_image_has_is_not_tried(tmp_path):
    config = project(tmp_path, "own", *ON_MODAL)
    own = config.rollout.model_copy(update={"engine": "own.py:Engine"})
    with pytest.raises(ConfigError, match=r"rollout\.engine = 'own\.py:Engine': no image on Modal"):
        for_trial({}, config.compute, own)
