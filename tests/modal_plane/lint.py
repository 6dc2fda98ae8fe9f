"""What a look at a deployed app finds, before it costs anything on the real thing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

GPUS = frozenset(
    ["T4", "L4", "A10", "L40S", "A100", "A100-40GB", "A100-80GB", "RTX-PRO-6000", "H100", "H100!"]
) | {"H200", "B200", "B200+", "B300"}
"""Names that Modal's documentation lists; neither the client nor this plane checks them."""
DEFAULT_TIMEOUT_S = 300
"""What a function gets that names no timeout."""
MAX_TIMEOUT_S = 24 * 3600
SWITCHES = frozenset(
    ["--compile-bytecode", "--system", "--no-deps", "--pre", "--upgrade", "--no-build-isolation"]
)
"""Options of pip and uv that no word follows."""


def lint(state: Mapping[str, Any]) -> list[str]:
    """Problems of what was deployed to a plane, one line each; none is good.

    Args:
        state: `ModalPlane.state()` after the deployment (and after the calls, if any).
    """
    problems = [p for one in state["functions"].values() for p in _lint_function(one)]
    for image_id, image in state["images"].items():
        found = [p for line in image["lines"] for p in _lint_line(line)]
        for name, text in image["files"].items():
            found += [f"{name}: {p}" for p in _lint_requirements(text)]
        problems += [f"image {image_id}: {p}" for p in found]
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
    if gpu and timeout_s == DEFAULT_TIMEOUT_S:
        yield f"{name}: timeout is the default of {DEFAULT_TIMEOUT_S} s; name another"
    if timeout_s > MAX_TIMEOUT_S:
        yield f"{name}: timeout {timeout_s} s is over 24 h"
    if gpu and function.get("autoscaler_settings", {}).get("min_containers"):
        yield f"{name}: min_containers keeps a {gpu} billed while it is idle"


def _lint_line(line: str) -> Iterator[str]:
    """Requirements of an install without an exact version, and base images without a tag."""
    first, *words = line.split()
    if first == "FROM" and words != ["base"] and ":" not in words[0] and "@" not in words[0]:
        yield f"{line!r} names no tag"
    found = re.search(r"pip install (.*)", line)
    if found is None or "--upgrade pip" in line:  # the image builder's own line
        return
    words = shlex.split(re.sub(r"\$\(.*?\)", "PYTHON", found[1]))
    for before, word in pairwise(["", *words]):
        is_value = before.startswith("-") and "=" not in before and before not in SWITCHES
        if not word.startswith("-") and not is_value:
            yield from _lint_requirements(word)


def _lint_requirements(text: str) -> Iterator[str]:
    for line in text.splitlines():
        requirement = line.partition("#")[0].strip()
        if re.match(r"[A-Za-z]", requirement) and not re.search(r"==|@|://", requirement):
            yield f"{requirement} is not pinned"
