"""Which worker is on which GPU, on machines that are made up."""

import json
import re
import subprocess

import pytest

from mortal_steps.compute import devices
from mortal_steps.compute.placement import sharing_gpus
from mortal_steps.config import ComputeConfig
from mortal_steps.errors import ConfigError
from mortal_steps.orchestration.checking.resolve_defaults import placed, resolve_defaults
from mortal_steps.orchestration.open_run import as_begun
from mortal_steps.orchestration.trials.opening import judging_plan, passing_workers
from mortal_steps.places.base import place_of
from mortal_steps.plan.loader import parse_config
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.system import gpus as of_system
from tests.support.made_up_gpus import let_there_be, several
from tests.support.refused import refused


def config(*, actor=(), devices=(), **rollout):
    local = {"actor": {"devices": actor}, "rollout": {"devices": devices}}
    return RunConfig.model_validate(
        {"model": {"new": {}}, "compute": {"local": local}, "rollout": {"engine": "vllm"} | rollout}
    )


def check_devices(config, *, samples=True):
    place_of(Plan(config).place).check(samples=samples)


def find_placement(config, *, samples=True):
    return place_of(Plan(config).place).placement(samples=samples)


def addresses(found):
    actor = found.trainers[0].address if found.trainers else None
    return actor, [",".join(gpu.address for gpu in gpus) for gpus in found.engines]


@pytest.mark.parametrize(
    ("gpus", "settings", "actor", "engines"),
    [
        (0, {}, None, ["", ""]),
        (1, {}, "0", ["0"]),
        (1, {"num_rollout_workers": 2}, "0", ["0", "0"]),
        (2, {}, "0", ["1"]),
        (8, {}, "0", [*"1234567"]),
        (2, {"num_rollout_workers": 2}, "0", ["1", "1"]),
        (4, {"actor": ["2"]}, "2", [*"013"]),
        (4, {"devices": ["0", "1"]}, "2", [*"01"]),
        (2, {"devices": ["0", "1"]}, "0", [*"01"]),
        (2, {"actor": ["0"], "devices": ["0"]}, "0", ["0"]),
        (2, {"actor": [""]}, None, [*"01"]),
        (2, {"devices": [""]}, "0", ["", ""]),
        (5, {"engine_options": {"tensor_parallel_size": 2}}, "0", ["1,2", "3,4"]),
        (2, {"engine_options": {"tensor_parallel_size": 2}}, "0", ["0,1"]),
    ],
)
def test_the_actor_takes_the_first_gpu_and_each_other_gets_an_engine(
    monkeypatch, gpus, settings, actor, engines
):
    let_there_be(monkeypatch, several(gpus))
    assert addresses(find_placement(config(**settings))) == (actor, engines)


@pytest.mark.parametrize(
    ("gpus", "settings", "trainers", "engines"),
    [
        (8, {}, "0,1,2,3", [*"4567"]),
        (4, {}, "0,1,2,3", ["0"]),
        (4, {"num_rollout_workers": 3}, "0,1,2,3", [*"012"]),
        (
            4,
            {"num_rollout_workers": 4, "engine_options": {"tensor_parallel_size": 2}},
            "0,1,2,3",
            ["0,1", "2,3", "0,1", "2,3"],
        ),
        (8, {"actor": ["4,5,6,7"]}, "4,5,6,7", [*"0123"]),
        (8, {"devices": ["0", "1"]}, "2,3,4,5", [*"01"]),
        (0, {}, "", ["", ""]),
    ],
)
def test_each_rank_of_the_actor_has_a_gpu(monkeypatch, gpus, settings, trainers, engines):
    let_there_be(monkeypatch, several(gpus))
    ranks = with_ranks(4, **settings)
    found = find_placement(ranks)
    assert ",".join(gpu.address for gpu in found.trainers) == trainers
    assert addresses(found)[1] == engines
    check_devices(ranks)
    assert placed(ranks).compute.local.actor.devices == ((trainers,) if gpus else ())


def test_another_number_of_gpus_than_ranks_is_refused(monkeypatch):
    let_there_be(monkeypatch, several(8))
    with refused(ConfigError, "'2,3'", "training.ranks = 1"):
        check_devices(config(actor=["2,3"]))
    with refused(ConfigError, "'0,1,2'", "training.ranks = 2"):
        check_devices(with_ranks(2, actor=["0,1,2"]))
    with refused(ConfigError, "training.ranks = 4", "has 2"):
        check_devices(with_ranks(4, actor=["0,1"]))
    let_there_be(monkeypatch, several(1))
    with refused(ConfigError, "training.ranks = 2", "has 1"):
        check_devices(with_ranks(2))
    on_modal = {"backend": "modal", "modal": {"actor": "H100:4"}}
    with refused(ConfigError, "2 GPUs", "training.ranks", "'H100:2'"):
        check_devices(RunConfig(compute=on_modal, training={"ranks": 2}))
    found = find_placement(RunConfig(compute=on_modal, training={"ranks": 4}))
    assert len(found.trainers) == 4


def with_ranks(ranks, **settings):
    own = config(**settings)
    training = own.training.model_copy(update={"ranks": ranks})
    return own.model_copy(update={"training": training})


def test_a_run_without_samplers_has_the_actors_gpu_alone(monkeypatch, caplog):
    let_there_be(monkeypatch, several(4))
    for backend in ("local", "modal"):
        here = config() if backend == "local" else RunConfig(compute={"backend": "modal"})
        found = find_placement(here, samples=False)
        assert (len(found.gpus), found.engines, found.shares) == (1, (), False)
    check_devices(config(), samples=False)
    assert not caplog.text


def test_the_workers_get_the_devices_that_the_placement_says(monkeypatch):
    let_there_be(monkeypatch, several(3))
    found = placed(config())
    local = found.compute.local
    assert (local.actor.devices, local.rollout.devices) == (("0",), ("1", "2"))
    assert found.num_rollout_workers == 2
    assert placed(found) == found
    let_there_be(monkeypatch, several(1))
    assert placed(config()).compute == config().compute  # it sees no other


def test_a_model_is_tried_and_judged_on_the_gpus_of_its_rollout_workers(monkeypatch):
    let_there_be(monkeypatch, several(3))
    trial = passing_workers(Plan(placed(config())).workers)
    tried = trial["rollout"]
    judged = judging_plan(config(), 1).workers["rollout"]
    for spec in (tried, judged):
        assert spec.devices == ("1", "2") and spec.count == 2
        assert "gpu_memory_utilization" not in spec.kwargs["plan"].rollout.engine_options
    assert trial["actor"].devices == ("0",)


def test_seven_devices_have_seven_workers(monkeypatch):
    let_there_be(monkeypatch, several(8))
    seven = config(actor=["0"], devices=[*"1234567"])
    assert placed(seven).num_rollout_workers == 7


def test_a_run_has_a_shard_for_each_engine_and_keeps_it_on_another_machine(monkeypatch):
    let_there_be(monkeypatch, several(4))
    begun = resolve_defaults(config())
    assert begun.rollout.num_shards == 3
    assert begun.rollout.num_rollout_workers is None
    let_there_be(monkeypatch, several(1))
    resumed = as_begun(config(), begun)
    assert resumed.fingerprint() == begun.fingerprint()
    assert placed(resumed).num_rollout_workers == 1
    assert resumed.num_shards == 3


def test_idle_gpus_are_named(monkeypatch, caplog):
    let_there_be(monkeypatch, several(4))
    check_devices(config())
    assert not caplog.text
    check_devices(config(num_rollout_workers=1))
    assert "GPU 2, 3 do nothing" in caplog.text
    assert "rollout.num_rollout_workers = 1" in caplog.text
    caplog.clear()
    check_devices(config(devices=["1", "2", "3"], num_rollout_workers=2))
    assert "GPU 3 does nothing: compute.local.rollout.devices names more" in caplog.text
    caplog.clear()
    check_devices(config(engine_options={"tensor_parallel_size": 2}))
    assert "GPU 3 does nothing: an engine takes 2" in caplog.text


def test_a_single_node_leaves_gpus_idle_whatever_the_number_of_workers(monkeypatch, caplog):
    let_there_be(monkeypatch, several(4))
    single = {"compute": ComputeConfig(mode="single_node")}
    check_devices(config().model_copy(update=single))
    assert "mode=Distributed()" in caplog.text and "num_rollout_workers" not in caplog.text


def test_an_engine_on_several_gpus_needs_as_many(monkeypatch):
    let_there_be(monkeypatch, several(4))
    two = {"tensor_parallel_size": 2}
    with refused(ConfigError, "2 GPUs", "has 1"):
        check_devices(config(devices=["1"], engine_options=two))
    let_there_be(monkeypatch, several(1))
    with refused(ConfigError, "2 GPUs", "has 1"):
        check_devices(config(engine_options=two))


def test_who_shares_no_gpu_need_not_sleep(monkeypatch):
    let_there_be(monkeypatch, several(2))
    asleep = {"sleep_while_training": True}
    check_devices(config(actor=["0"], devices=["0"], **asleep))
    with refused(ConfigError, "rollout.sleep_while_training = true", "GPUs"):
        check_devices(config(**asleep))
    let_there_be(monkeypatch, several(1))
    check_devices(config(**asleep))
    let_there_be(monkeypatch, [])
    with pytest.raises(ConfigError, match="this machine has no GPU"):
        check_devices(config(**asleep))


@pytest.mark.parametrize(
    ("compute", "told"),
    [
        ({"modal": {"gpu": "H100"}}, ["compute.modal.gpu", "compute.modal.actor"]),
        (
            {"mode": "single_node", "modal": {"actor": "H100"}},
            ["compute.modal.actor", "'single_node'", "compute.modal.gpu"],
        ),
        ({"modal": {"actor": "H100:2"}}, ["compute.modal.actor = 'H100:2'", "'H100'"]),
        (
            {"modal": {"rollout": "H100:8"}},
            ["compute.modal.rollout = 'H100:8'", "'H100'", "rollout.num_rollout_workers = 8"],
        ),
        (
            {"mode": "single_node", "modal": {"gpu": "A100:2"}},
            ["compute.modal.gpu = 'A100:2'", "'A100'"],
        ),
        (
            {"mode": "single_node", "modal": {"gpu": "A100:4", "vllm_mode": "server"}},
            ["compute.modal.gpu = 'A100:4'", "'A100:2'"],
        ),
    ],
)
def test_gpus_that_would_do_nothing_are_not_rented(compute, told):
    with refused(ConfigError, *told):
        check_devices(RunConfig(compute={"backend": "modal", **compute}))


def test_without_sampling_a_node_on_modal_has_the_gpus_of_training_alone():
    def node(**modal):
        values = {"backend": "modal", "mode": "single_node", "modal": modal}
        rows = {"algorithm": {"type": "sft"}, "data": {"source": "rows.jsonl"}}
        return place_of(Plan(parse_config({"compute": values, **rows})).place)

    found = node(gpu="H100").placement(samples=False)
    assert [gpu.name for gpu in found.trainers] == ["H100"] and found.engines == ()
    with refused(ConfigError, "vllm_mode = 'server'", "nothing is sampled"):
        node(gpu="H100:2", vllm_mode="server").placement(samples=False)


def spread_on_modal(ranks, **modal):
    training = {"batch_size": ranks, "ranks": ranks}
    return RunConfig(compute={"backend": "modal", "modal": modal}, training=training)


@pytest.mark.parametrize(
    ("actor", "ranks", "told"),
    [
        ("H100:4", 16, ["16 GPUs", "at most 8", "'H100:8'", "training.ranks = 16"]),
        ("A10G:2", 6, ["at most 4", "'A10G:4'", "training.ranks = 8", "have 4"]),
        ("L4:8", 16, ["'L4:8'", "H100", "8 ranks"]),
        ("H100:8", 512, ["256"]),
        ("H100:8", 12, ["'H100:8'", "training.ranks = 16"]),
    ],
)
def test_containers_that_train_together_are_whole(actor, ranks, told):
    with refused(ConfigError, *told):
        check_devices(spread_on_modal(ranks, actor=actor))


def test_ranks_beyond_the_gpus_of_a_container_take_several():
    spread = spread_on_modal(16, actor="H100:8")
    check_devices(spread)
    assert Plan(spread).place.actor_containers == 2
    assert len({gpu.uuid for gpu in find_placement(spread).trainers}) == 16
    assert Plan(spread_on_modal(8, actor="H100:8")).place.actor_containers == 1
    with refused(ConfigError, "gpu = 'H100:8'", "at most 8"):
        check_devices(
            RunConfig(
                compute={
                    "backend": "modal",
                    "mode": "single_node",
                    "modal": {"gpu": "H100:8"},
                },
                training={"batch_size": 16, "ranks": 16},
            )
        )


def test_an_engine_on_eight_gpus_rents_eight():
    modal = {"backend": "modal", "modal": {"rollout": "H100:8"}}
    parallel = {"engine_options": {"tensor_parallel_size": 8}}
    check_devices(RunConfig(compute=modal, rollout=parallel))
    modal["modal"] = {"rollout": "H100:2"}
    with refused(ConfigError, "8 GPUs", "'H100:8'"):
        check_devices(RunConfig(compute=modal, rollout=parallel))


@pytest.mark.parametrize(
    ("gpu", "mode", "ranks", "instead"),
    [
        ("H100", "colocate", 1, "trains on one GPU, and the rollout worker samples on 2. Write '"),
        ("H100:2", "server", 1, "trains on one GPU, and the rollout worker samples on 2. Write '"),
        ("H100", "colocate", 4, "trains on 4 GPUs (training.ranks). Write 'H100:4'"),
    ],
)
def test_a_single_node_has_the_gpus_of_its_engine(gpu, mode, ranks, instead):
    modal = {"gpu": gpu, "vllm_mode": mode}
    compute = {"backend": "modal", "mode": "single_node", "modal": modal}
    rollout = {"engine_options": {"tensor_parallel_size": 2}}
    with pytest.raises(ConfigError, match=re.escape(instead)) as raised:
        check_devices(RunConfig(compute=compute, rollout=rollout, training={"ranks": ranks}))
    modal["gpu"] = str(raised.value).rpartition("Write ")[2].strip("'")
    found = find_placement(RunConfig(compute=compute, rollout=rollout, training={"ranks": ranks}))
    (engine,) = found.engines
    assert (len(found.trainers), len(engine)) == (ranks, 2)
    assert found.shares == (mode == "colocate")


def shared(run):
    return sharing_gpus(run.compute.local, run.rollout, run.num_rollout_workers)


@pytest.mark.parametrize(
    ("gpus", "settings", "share"),
    [
        (1, {}, 0.3),
        (1, {"num_rollout_workers": 2}, 0.2),
        (2, {"num_rollout_workers": 2}, 0.45),
        (3, {}, None),
        (3, {"devices": ["1,2"]}, None),
        (2, {"devices": ["0", "1"], "num_rollout_workers": 4}, 0.2),
        (1, {"actor": ["GPU-0000-0"]}, 0.3),
        (1, {"devices": ["GPU-0000-0"]}, 0.3),
        (2, {"actor": ["GPU-0000-0"]}, None),
    ],
)
def test_workers_on_one_gpu_share_its_memory(monkeypatch, gpus, settings, share):
    let_there_be(monkeypatch, several(gpus))
    options = shared(placed(config(**settings))).engine_options
    assert options == ({} if share is None else {"gpu_memory_utilization": share})


def test_what_the_configuration_says_of_memory_stands():
    chosen = {"gpu_memory_utilization": 0.5}
    assert shared(config(engine_options=chosen)).engine_options == chosen
    plain = config(engine="transformers")
    assert shared(plain) == plain.rollout


@pytest.mark.parametrize(
    ("training", "steps"),
    [
        ({}, 4),
        ({"batch_size": 1, "num_generations": 6}, 1),
        ({"batch_size": 3, "num_generations": 6}, 3),
        ({"batch_size": 17, "num_generations": 2}, 17),
        ({"gradient_accumulation_steps": 1}, 1),
        ({"trl": {"steps_per_generation": 2}}, 1),
        ({"loss_type": "bnpo"}, 1),
    ],
)
def test_a_micro_batch_on_a_gpu_has_at_most_eight_completions(monkeypatch, training, steps):
    values = config().model_dump() | {"training": training}
    chosen = RunConfig.model_validate(values)
    let_there_be(monkeypatch, [])
    on_cpu = resolve_defaults(chosen)
    assert on_cpu.training.gradient_accumulation_steps == 1
    let_there_be(monkeypatch, several(1))
    begun = resolve_defaults(chosen)
    assert begun.training.gradient_accumulation_steps == steps
    let_there_be(monkeypatch, [])
    assert as_begun(chosen, begun) == begun


@pytest.mark.parametrize(("native", "dtype"), [(True, "bfloat16"), (False, None)])
def test_a_gpu_that_emulates_bfloat16_samples_in_float32(monkeypatch, native, dtype):
    let_there_be(monkeypatch, several(1, "Tesla T4", 14.6, bfloat16=native))
    assert resolve_defaults(config()).rollout.dtype == dtype


def test_torch_is_asked_once(monkeypatch, tmp_path):
    asked = []

    def run(command, **options):
        asked.append((command[0], options["env"].get("CUDA_VISIBLE_DEVICES")))
        found = [
            {"name": "GPU", "memory": 24 * 2**30, "bfloat16": True, "uuid": f"u{number}"}
            for number in range(3)
        ]
        return subprocess.CompletedProcess(command, 0, stdout=f"hello\n{json.dumps(found)}\n")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(of_system, "GPUS", (str(tmp_path),))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    devices._ask.cache_clear()
    local = {"actor": {"devices": ["1"]}, "rollout": {"python": "sh", "devices": ["GPU-u2", "0"]}}
    own = config().model_copy(update={"compute": ComputeConfig.model_validate({"local": local})})
    settled = resolve_defaults(own)
    check_devices(settled)
    assert addresses(find_placement(settled)) == ("1", ["GPU-u2", "0"])
    assert settled.rollout.dtype == "bfloat16"
    assert len(asked) == 1
    devices._ask.cache_clear()
