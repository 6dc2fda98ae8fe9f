"""The environment variables that code of users sees: all of the flow's, except credentials."""

from __future__ import annotations

from collections.abc import Collection, Mapping

ORCHESTRATION = ("PREFECT_", "MODAL_")
"""Prefixes of variables that control the run: its server, and the account on which it runs."""

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
"""Of trackers, model hubs and clouds. The key of a service that users' code asks is its own
business."""


def visible_environment(environment: Mapping[str, str], named: Collection[str]) -> dict[str, str]:
    """Return the variables for code of users; those `named` are always included."""
    return {
        name: value
        for name, value in environment.items()
        if name in named or not (name in CREDENTIALS or name.startswith(ORCHESTRATION))
    }
