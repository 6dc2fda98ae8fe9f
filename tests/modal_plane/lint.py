"""What a look at a deployed app finds, before it costs anything on the real thing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

GPUS = frozenset(
    "T4 L4 A10 L40S A100 A100-40GB A100-80GB RTX-PRO-6000 H100 H100! H200 B200 B200+ B300".split()
)
"""Names that Modal's documentation lists; neither the client nor this plane checks them."""
DEFAULT_TIMEOUT_S = 300
"""What a function gets that names no timeout."""
MAX_TIMEOUT_S = 24 * 3600
WITHOUT_VALUE = frozenset(["--compile-bytecode", "--system", "--no-deps", "--pre", "--upgrade"])
"""Options of pip and uv that no word follows."""


def lint(state: Mapping[str, Any]) -> list[str]:
    """Problems of what was deployed to a plane, one line each; none is good.

    Args:
        state: `ModalPlane.state()` after the deployment (and after the calls, if any).
    """
    problems = [p for one in state["functions"].values() for p in _lint_function(one)]
    for image_id, lines in state["images"].items():
        problems += [f"image {image_id}: {p}" for line in lines for p in _lint_line(line)]
    for event in state["events"]:
        if event["kind"] == "unimplemented":
            problems.append(f"RPC {event['rpc']} is not emulated")
        elif event["kind"] == "plane_error":
            problems.append(f"RPC {event['rpc']} failed in the plane: {event['error']}")
    return list(dict.fromkeys(problems))


def _lint_function(function: Mapping[str, Any]) -> Iterator[str]:
    name = function["function_name"]
    gpu = function.get("resources", {}).get("gpu_config", {}).get("gpu_type", "")
    timeout_s = function.get("timeout_secs", 0)
    if gpu and gpu not in GPUS:
        yield f"{name}: unknown GPU {gpu!r}"
    if timeout_s == DEFAULT_TIMEOUT_S:
        yield f"{name}: timeout is the default of {DEFAULT_TIMEOUT_S} s; name one"
    if timeout_s > MAX_TIMEOUT_S:
        yield f"{name}: timeout {timeout_s} s is over 24 h"
    if gpu and function.get("autoscaler_settings", {}).get("min_containers"):
        yield f"{name}: min_containers keeps a {gpu} billed while it is idle"


def _lint_line(line: str) -> Iterator[str]:
    """Requirements of an install without an exact version, and base images without a tag."""
    if line.startswith("FROM ") and ":" not in line and "@" not in line and "base" not in line:
        yield f"{line!r} names no tag"
    found = re.search(r"pip install (.*)", line)
    if found is None or "--upgrade pip" in line:  # the image builder's own line
        return
    words = re.sub(r"\$\(.*?\)", "", found[1]).split()
    skip = False
    for word in words:
        if skip or word.startswith("-"):
            skip = word.startswith("-") and "=" not in word and word not in WITHOUT_VALUE
        elif re.match(r"[A-Za-z]", word.strip("'\"")) and not re.search(r"==|@|://", word):
            yield f"{word} is not pinned"
