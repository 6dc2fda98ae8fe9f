"""TRL's environments: a class of the user's with `reset` and tools. All settings are those that
every kind has."""

from mortal_steps.config.environment import EnvironmentConfig

TrlEnvironment = EnvironmentConfig
