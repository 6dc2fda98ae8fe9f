"""What reward functions see of the flow's environment: all but what opens doors for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

ORCHESTRATION = ("PREFECT_", "MODAL_")
"""How the names of variables begin that drive the run: its server, the account it runs on."""

CREDENTIALS = frozenset(
    {
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "AZURE_CLIENT_SECRET",
        "AZURE_STORAGE_CONNECTION_STRING",
        "AZURE_STORAGE_KEY",
        "GH_TOKEN",
        "GITHUB_TOKEN",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "HF_TOKEN",
        "HUGGINGFACE_HUB_TOKEN",
        "HUGGING_FACE_HUB_TOKEN",
        "TRACKIO_WRITE_TOKEN",
        "WANDB_API_KEY",
        "WANDB_IDENTITY_TOKEN_FILE",
    }
)
"""Of trackers, model hubs and clouds. A judge's key is the reward functions' own business."""


def visible_environment(environment: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """The variables that reward functions get; those `named` in any case."""
    return {
        name: value
        for name, value in environment.items()
        if name in named or not (name in CREDENTIALS or name.startswith(ORCHESTRATION))
    }
