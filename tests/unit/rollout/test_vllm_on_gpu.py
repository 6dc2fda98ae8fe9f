"""What is asked of vLLM on a GPU; no GPU and no vLLM is needed to see it."""

from types import SimpleNamespace

import pytest

from mortal_steps.errors import EngineError, UnusableProcessError
from mortal_steps.orchestration.checking import resolve_defaults as defaults
from mortal_steps.places.base import place_of
from mortal_steps.plan.parts import Plan
from mortal_steps.plan.run_config import RunConfig
from mortal_steps.rollout.engines.vllm.engine import VllmEngine
from mortal_steps.rollout.engines.vllm.platforms import with_fixed_kernels
from mortal_steps.system.faults import ends_process
from tests.support.made_up_gpus import let_there_be, several


def inductor(options):
    return options["compilation_config"]["inductor_compile_config"]


def test_no_kernel_is_chosen_by_a_stopwatch():
    options = with_fixed_kernels({"dtype": "bfloat16"})
    assert options["dtype"] == "bfloat16"
    assert inductor(options) == {"combo_kernels": False, "deterministic": True}
    assert options["kernel_config"] == {"enable_flashinfer_autotune": False}


def test_what_the_user_says_of_kernels_stays():
    own = {
        "compilation_config": {"mode": 3, "inductor_compile_config": {"combo_kernels": True}},
        "kernel_config": {"enable_flashinfer_autotune": True},
    }
    options = with_fixed_kernels(own)
    assert options["compilation_config"]["mode"] == 3
    assert inductor(options) == {"combo_kernels": True, "deterministic": True}
    assert options["kernel_config"] == own["kernel_config"]
    options = with_fixed_kernels({"compilation_config": 0, "enable_flashinfer_autotune": True})
    assert options["compilation_config"]["mode"] == 0
    assert "kernel_config" not in options


class Llm:
    """Notes what is asked of it. `fails` names what it cannot do."""

    def __init__(self, name, calls, *, asleep=(), fails=()):
        self.name, self.calls, self.asleep, self.fails = name, calls, set(asleep), fails
        core = SimpleNamespace(shutdown=lambda: self.note("shut down"))
        self.llm_engine = SimpleNamespace(
            engine_core=core, is_sleeping=lambda: bool(self.asleep), model_executor=object()
        )

    def note(self, what):
        self.calls.append(f"{self.name}: {what}")
        if what in self.fails:
            raise RuntimeError(f"{what}: CUDA error: out of memory")

    def sleep(self, level):
        self.note("sleep")
        self.asleep = {"weights", "kv_cache"}

    def wake_up(self, tags=None):
        self.note("wake up")
        self.asleep -= set(tags or self.asleep)


@pytest.fixture
def engine(tmp_path):
    """An engine whose vLLMs are `Llm`s."""
    made = VllmEngine.__new__(VllmEngine)
    made.calls = []
    made.on_cpu, made._sleep_level, made._asleep, made._sleeps = True, 2, False, True
    made._adapters = SimpleNamespace(forget=lambda: None)
    made._base_path = str(tmp_path)
    made._llm = Llm("old", made.calls)

    def start(model):
        made.calls.append("new: start")
        return Llm("new", made.calls)

    made._start = start
    return made


def test_an_engine_that_sleeps_is_woken_before_it_is_closed(engine, tmp_path):
    engine.sleep()
    engine.restart(tmp_path)
    assert engine.calls == ["old: sleep", "old: wake up", "old: shut down", "new: start"]
    assert not engine._asleep


def test_one_that_has_no_memory_for_keys_is_woken_too(engine, tmp_path):
    engine.release_memory()
    assert engine._llm.asleep == {"kv_cache"}
    engine.restart(tmp_path)
    assert engine.calls[2:] == ["old: wake up", "old: shut down", "new: start"]


def test_one_that_is_awake_is_closed_as_it_is(engine, tmp_path):
    engine.restart(tmp_path)
    assert engine.calls == ["old: shut down", "new: start"]


def test_one_that_does_not_wake_up_is_not_closed_and_ends_its_process(engine, tmp_path):
    engine._llm.fails = ("wake up",)
    engine.sleep()
    with pytest.raises(UnusableProcessError) as caught:
        engine.restart(tmp_path)
    assert engine.calls == ["old: sleep", "old: wake up"]
    assert ends_process(caught.value)


def test_one_that_does_not_shut_down_is_replaced_all_the_same(engine, tmp_path):
    engine._llm.fails = ("shut down",)
    engine.restart(tmp_path)
    assert engine.calls == ["old: shut down", "new: start"]


def test_what_fails_once_a_process_of_vllm_is_lost_ends_the_workers_process(engine, tmp_path):
    def lost(alive):
        return SimpleNamespace(proc=SimpleNamespace(is_alive=lambda: alive))

    executor = engine._llm.llm_engine.model_executor = SimpleNamespace(
        workers=[lost(True), lost(True)]
    )
    engine._llm.reset_prefix_cache = lambda: False
    engine._one_seed = True
    with pytest.raises(EngineError, match="prefix cache"):
        engine.sample([], [], None)
    executor.workers[1] = lost(False)
    with pytest.raises(UnusableProcessError):
        engine.sample([], [], None)
    with pytest.raises(UnusableProcessError):
        engine.restart(tmp_path)
    engine._llm = Llm("lost", engine.calls)
    engine._llm.llm_engine.model_executor = executor
    engine._shapes, engine._tied, engine._is_published = {}, False, False
    with pytest.raises(UnusableProcessError):
        engine.load(tmp_path)


@pytest.mark.parametrize(
    ("values", "num_gpus", "expected"),
    [
        ({}, 2, "volume"),
        ({}, 0, "reload"),
        ({"rollout": {"sleep_while_training": True}}, 1, "reload"),
        ({"compute": {"local": {"rollout": {"devices": [""]}}}}, 1, "reload"),
        ({"compute": {"local": {"rollout": {"devices": ["1"]}}}}, 2, "volume"),
        ({"compute": {"backend": "modal"}}, 0, "volume"),
        ({"rollout": {"weight_sync": "checkpoint"}}, 1, "checkpoint"),
    ],
)
def test_weights_are_read_over_the_old_ones_on_a_gpu_that_is_not_shared_in_turn(
    values, num_gpus, expected, monkeypatch
):
    let_there_be(monkeypatch, several(num_gpus))
    config = RunConfig.model_validate(values)
    chosen = defaults._find_weight_sync(config.rollout, place_of(Plan(config).place).placement())
    settled = defaults.resolved(config, cores=2, weight_sync=chosen)
    assert settled.rollout.weight_sync == expected
    assert defaults.resolved_like(config, settled).rollout.weight_sync == expected
