"""The table of environments: `type` of `[environment]` -> its class, an `EnvironmentConfig`."""

from mortal_steps.extensions import Registry, simple

TRL = "trl"
ENVIRONMENTS = Registry(
    "environment.type",
    simple(
        {
            TRL: "mortal_steps.config.environment:EnvironmentConfig",
            "agent": "mortal_steps.environments.kinds.agent:AgentEnvironment",
            "gem": "mortal_steps.environments.kinds.gem:GemEnvironment",
            "openenv": "mortal_steps.environments.kinds.openenv:OpenEnvEnvironment",
            "skyrl": "mortal_steps.environments.kinds.skyrl:SkyRLEnvironment",
            "textarena": "mortal_steps.environments.kinds.textarena:TextArenaEnvironment",
            "verifiers": "mortal_steps.environments.kinds.verifiers:VerifiersEnvironment",
        }
    ),
)
