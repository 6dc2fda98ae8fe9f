"""Shapes of models."""

from mortal_steps.models.shape import ModelShape

SEVEN_BILLION = ModelShape(
    hidden=3584,
    layers=28,
    attention=3584,
    keys=512,
    mlp=18944,
    vocabulary=152064,
    tied=False,
    parameters=7_615_616_512,
)
