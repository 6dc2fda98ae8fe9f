"""The table of kinds of stages: names in `stages.NAME.type` -> what such a stage is."""

from mortal_steps.extensions import Registry, simple

TRAIN = "train"
"""The kind of a stage without a `type`."""
STAGES = Registry(
    "stages.NAME.type",
    simple(
        {
            TRAIN: "mortal_steps.recipes.kinds.train:TrainStage",
            "sample": "mortal_steps.recipes.kinds.sample:SampleStage",
            "evaluate": "mortal_steps.recipes.kinds.evaluate:EvaluateStage",
            "function": "mortal_steps.recipes.kinds.function:FunctionStage",
            "promote": "mortal_steps.recipes.kinds.promote:PromoteStage",
        }
    ),
)
"""Each is a subclass of `Stage` (stages.py)."""
