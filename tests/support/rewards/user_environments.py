"""Environments as users write them."""

import modal

from mortal.rewards import ExecutionResult, FunctionConfig, RewardEnvironment, SandboxConfig
from mortal.rewards.extraction import extract_code


class CodeExecutionReward(RewardEnvironment):
    name = "CodeExecution"
    function_config = FunctionConfig(timeout=5)

    def score(self, completion: str, prompt: str, **kwargs) -> float:
        code = extract_code(completion)
        if not code:
            return 0.0
        result = self.execute_in_function(code)
        return 1.0 if result.success else 0.0

    def score_batch(self, completions, prompts, **kwargs):
        codes = [extract_code(c) for c in completions]
        results = self.execute_batch_in_function(codes)
        assert all(isinstance(r, ExecutionResult) for r in results)
        return [1.0 if r.success else 0.0 for r in results]


class NumpyTestEnv(RewardEnvironment):
    name = "NumpyTest"
    sandbox_config = SandboxConfig(
        image=modal.Image.debian_slim().pip_install("numpy", "scipy"),
        timeout=60,
    )

    def score(self, completion: str, prompt: str, **kwargs) -> float:
        result = self.execute_in_sandbox(extract_code(completion))
        return 1.0 if result.success else 0.0
