"""The vocabulary of MORTAL. Read this file first.

One training step turns a `Problem` into `Completion`s, scores them into `Rollout`s, gathers the
rollouts of one problem into a `RolloutGroup` and all groups of a step into a `RolloutBatch`, which
the actor trains on. A worked example with a group size of 2 (token ids are made up):

    Problem      id="train-7"  prompt="abc="            columns={"answer": "cba"}
    prompt_ids   [5, 6, 7, 30]
    Completion   token_ids=[7, 6, 5, 1]  logprobs=[-0.1, -0.4, -0.2, -0.0]  text="cba"  (1 is EOS)
    Completion   token_ids=[7, 5]        logprobs=[-0.1, -1.9]              text="ca"
    Rollout      completion + rewards={"exact_match": 1.0} + reward=1.0
    Rollout      completion + rewards={"exact_match": 0.0} + reward=0.0
    RolloutGroup problem + prompt_ids + both rollouts      -> advantages +, - inside the group
    RolloutBatch step=12, policy_version=12, all groups    -> one `train_step`

`logprobs[i]` always belongs to `token_ids[i]` and is its log-probability over the whole vocabulary
at the temperature: what the trainer computes again, whatever top-k, top-p and min-p had left.

Where each word is explained:

    rollouts.py    the words above, and how tokens are drawn
    shards.py      a step on its way there, as rollout and reward workers commit it
    references.py  `*Ref`: all that travels between tasks; the data itself lies in the run store
    results.py     what a stage returns of the policy: a step taken, a state saved, an evaluation
    requests.py    what the flow asks of rollout and reward workers
"""

from mortal_steps.types.references import (
    BatchRef,
    FileRef,
    GenerationRef,
    HarnessRef,
    JudgeCosts,
    RewardRef,
    StageTiming,
    WeightsRef,
)
from mortal_steps.types.requests import (
    GenerateRequest,
    HarnessRequest,
    RewardRequest,
)
from mortal_steps.types.results import (
    ActorReady,
    Checkpoint,
    Evaluation,
    FinalModel,
    StepResult,
    TrainingPlace,
)
from mortal_steps.types.rollouts import (
    ChatSettings,
    Completion,
    Episode,
    FinishReason,
    PolicyVersion,
    Problem,
    Prompt,
    Rollout,
    RolloutBatch,
    RolloutGroup,
    SamplingParams,
    Turn,
)
from mortal_steps.types.shards import (
    FailureKind,
    GeneratedGroup,
    GeneratedShard,
    HarnessAnswer,
    RewardedShard,
    RewardFailure,
)

__all__ = [
    "ActorReady",
    "BatchRef",
    "ChatSettings",
    "Checkpoint",
    "Completion",
    "Episode",
    "Evaluation",
    "FailureKind",
    "FileRef",
    "FinalModel",
    "FinishReason",
    "GenerateRequest",
    "GeneratedGroup",
    "GeneratedShard",
    "GenerationRef",
    "HarnessAnswer",
    "HarnessRef",
    "HarnessRequest",
    "JudgeCosts",
    "PolicyVersion",
    "Problem",
    "Prompt",
    "RewardFailure",
    "RewardRef",
    "RewardRequest",
    "RewardedShard",
    "Rollout",
    "RolloutBatch",
    "RolloutGroup",
    "SamplingParams",
    "StageTiming",
    "StepResult",
    "TrainingPlace",
    "Turn",
    "WeightsRef",
]
