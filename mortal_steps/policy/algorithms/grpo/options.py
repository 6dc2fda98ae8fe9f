"""From a run's configuration to TRL's GRPOConfig."""

from __future__ import annotations

from typing import Any

from trl import GRPOConfig

from mortal_steps.config import RunConfig
from mortal_steps.errors import ConfigError
from mortal_steps.policy.algorithms.stepping.options import build_options, check_options


def check_trl_options(config: RunConfig) -> tuple[str, ...]:
    """Build the GRPOConfig of a run and drop it (`check_options`)."""
    return check_options(config, build_trl_config)


def build_trl_config(config: RunConfig, **options: Any) -> GRPOConfig:
    """The GRPOConfig of a run (`build_options`). Raises `ConfigError`."""
    built = build_options(config, GRPOConfig, **options)
    _check_vespo(built)
    return built


def _check_vespo(built: GRPOConfig) -> None:
    # TRL's own check looks at `use_vllm`, which is off in the GRPOConfig (see stepper.py).
    mode = built.vllm_importance_sampling_mode
    corrects = built.vllm_importance_sampling_correction
    if built.loss_type == "vespo" and corrects and not mode.startswith("token_"):
        raise ConfigError(
            f"training.trl.vllm_importance_sampling_mode = {mode!r}: the vespo loss corrects "
            "importance per token; set it to 'token_truncate' or 'token_mask'"
        )
