"""Where rewards are called. No process is started here."""

from pathlib import Path
from typing import Any, Self

import pytest

from mortal_steps.config import ComputeConfig, ModelConfig, RewardsConfig, RewardTerm
from mortal_steps.errors import RewardError
from mortal_steps.rewards import host
from mortal_steps.rewards.kinds.teacher import TeacherTerm
from mortal_steps.rewards.scoring.assignments import assign
from tests.support.refused import refused

ONE = {"function": "rewards.py:one"}
TWO = {"function": "rewards.py:two"}
BY_PROBLEM = {"function": "rewards.py:each", "calls": "problem", "processes": 3}
MODEL = {"type": "model", "model": "./models/judge"}


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ([ONE, TWO], [(["one", "two"], 1, False)]),
        ([ONE, MODEL, TWO], [(["one", "two"], 1, False), (["judge"], 1, False)]),
        ([{**ONE, "processes": 1}, TWO], [(["two"], 1, False), (["one"], 1, False)]),
        ([BY_PROBLEM], [(["each"], 3, True)]),
        ([{**ONE, "calls": "problem"}], [(["one"], 1, True)]),
    ],
)
def test_functions_share_a_process_unless_they_ask_for_their_own(
    tmp_path: Path, terms: list[dict[str, Any]], expected: list[Any]
) -> None:
    assignments = assign(
        RewardsConfig.model_validate({"terms": terms}),
        compute=ComputeConfig(),
        gym_rows=False,
        template_options={},
        run_dir=tmp_path,
        before_start=lambda: None,
    )
    found = [(list(each.names), len(each.hosts), each.by_problem) for each in assignments]
    assert found == expected


class OwnModel(RewardTerm):
    """A kind of reward of somebody's own that is a model."""

    @property
    def is_model(self) -> bool:
        return True

    @property
    def takes_prompt_ids(self) -> bool:
        return True

    def process_variables(self, visible: str | None) -> dict[str, str]:
        return {"SEEN": str(visible)}

    def with_template(self, options: dict[str, Any]) -> Self:
        return self.model_copy(update={"name": options["named"]})


def test_a_kind_that_is_a_model_says_itself_which_process_it_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(host, "HostProcess", lambda *_, **given: started.append(given))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    own = OwnModel(type="own", name="own", weight=1.0)
    [found] = assign(
        RewardsConfig().model_copy(update={"terms": (own,)}),
        compute=ComputeConfig(),
        gym_rows=False,
        template_options={"named": "templated"},
        run_dir=tmp_path,
        before_start=lambda: None,
    )
    [its_host] = found.hosts
    assert isinstance(its_host, host.ModelHost) and its_host.takes_prompt_ids
    assert [term.name for term in its_host._terms.values()] == ["templated"]
    assert started[0]["variables"] == {"SEEN": "7"} and "HF_TOKEN" in started[0]["passed_on"]


def in_vllm(device: str) -> TeacherTerm:
    return TeacherTerm(
        name="teacher-main",
        teacher="main",
        model=ModelConfig(name_or_path="org/large"),
        engine="vllm",
        device=device,
        batch_size=1,
        threads=3,
        temperature=1.0,
        top_k=1,
        column=None,
    )


@pytest.mark.parametrize(
    ("device", "seen", "gpu"),
    [("cuda", "4,5", None), ("cuda:1", "4,5", "5"), ("cuda:1", None, "1")],
)
def test_an_engine_of_its_own_has_the_interpreter_of_rollout_workers_and_one_gpu(
    monkeypatch: pytest.MonkeyPatch, device: str, seen: str | None, gpu: str | None
) -> None:
    started: list[dict[str, Any]] = []
    monkeypatch.setattr(host, "HostProcess", lambda *_, **given: started.append(given))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if seen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    local = {"rollout": {"python": "/opt/vllm/bin/python"}}
    assign(
        RewardsConfig().model_copy(update={"terms": (in_vllm(device),)}),
        compute=ComputeConfig.model_validate({"local": local}),
        gym_rows=False,
        template_options={},
        run_dir=Path("run"),
        before_start=lambda: None,
    )
    [found] = started
    assert found["python"] == "/opt/vllm/bin/python"
    threads = {"OMP_NUM_THREADS": "3"}
    assert found["variables"] == threads | ({"CUDA_VISIBLE_DEVICES": gpu} if gpu else {})


@pytest.mark.parametrize("engine", ["vllm", "transformers"])
def test_a_teacher_has_a_host_that_reads_token_ids_and_may_ask_the_hub(
    tmp_path: Path, engine: str
) -> None:
    def refuse() -> None:
        raise RewardError("the teacher's files were changed")

    term = in_vllm("cpu").model_copy(update={"engine": engine})
    local = {"rollout": {"python": "/opt/vllm/bin/python"}}
    (assignment,) = assign(
        RewardsConfig().model_copy(update={"terms": (term,)}),
        compute=ComputeConfig.model_validate({"local": local}),
        gym_rows=False,
        template_options={},
        run_dir=tmp_path,
        before_start=refuse,
    )
    (host,) = assignment.hosts
    assert host.takes_prompt_ids and "HF_TOKEN" in host.process._passed_on
    assert host.process._python == ("/opt/vllm/bin/python" if engine == "vllm" else None)
    with refused(RewardError, "files were changed"):
        host.start()


@pytest.mark.parametrize(("device", "seen"), [("cuda:1", "2"), ("cuda:0", "")])
def test_a_gpu_that_is_hidden_from_reward_workers_is_no_teachers(device: str, seen: str) -> None:
    with refused(RewardError, "algorithm.teachers.main.device", f"= {seen!r}", "reward.devices"):
        in_vllm(device).process_variables(seen)
