"""`python -m tests.modal_plane --state DIR`: a local Modal control plane."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from .options import Options, StandIn
from .server import run


def make_parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}",
        description="A local Modal control plane: unmodified apps, real container processes, no "
        "account. Prints the variables that clients need, also to STATE/env.json, and serves "
        "until SIGTERM.",
    )
    add = parser.add_argument
    add("--state", required=True, type=Path, help="directory of everything it writes")
    add("--port", type=int, default=0, help="of the API; default: any free one")
    add(
        "--python",
        action="append",
        default=[],
        metavar="[MATCH=]PATH",
        help="interpreter that runs the containers of images with MATCH in a line of their build; "
        "the first that matches counts, without MATCH it is for every image (default: this one)",
    )
    add(
        "--isolation",
        choices=["namespaces", "none"],
        default="namespaces",
        help="none: no namespaces; volumes are shared directories without commit and reload",
    )
    add("--max-containers", type=int, default=8, help="of a pool without a limit of its own")
    add("--scaledown", type=float, default=60.0, metavar="S", help="idle time without a window")
    add("--timeout-grace", type=float, default=30.0, metavar="S", help="timeout to SIGINT, SIGKILL")
    add("--preemption-grace", type=float, default=30.0, metavar="S", help="SIGINT to SIGKILL")
    add("--heartbeat-timeout", type=float, default=60.0, metavar="S", help="of `modal run`")
    add("--background-commits", type=float, default=0.0, metavar="S", help="of volumes, every S")
    add("--startup-failures", type=int, default=1, help="before the waiting inputs fail")
    add("--line-delay", type=float, default=0.0, metavar="S", help="of clients, there and back")
    add("--reload-delay", type=float, default=0.0, metavar="S", help="of a container's reload")
    add("--commit-delay", type=float, default=0.0, metavar="S", help="of a container's commit")
    add("--env", action="append", default=[], metavar="NAME[=VALUE]", help="for every container")
    add("--hide", action="append", default=[], type=Path, help="directory containers see empty")
    add("--with-parent", action="store_true", help="stop when the starting process is gone")
    return parser


def parse(arguments: list[str]) -> Options:
    """The command line's options."""
    given = make_parser().parse_args(arguments)
    return Options(
        state=given.state.resolve(),
        stand_ins=tuple(stand_in(one) for one in [*given.python, sys.executable]),
        isolation=given.isolation,
        port=given.port,
        max_containers=given.max_containers,
        scaledown_s=given.scaledown,
        timeout_grace_s=given.timeout_grace,
        preemption_grace_s=given.preemption_grace,
        heartbeat_timeout_s=given.heartbeat_timeout,
        background_commit_s=given.background_commits,
        startup_failures=given.startup_failures,
        line_delay_s=given.line_delay,
        reload_delay_s=given.reload_delay,
        commit_delay_s=given.commit_delay,
        environment=tuple(variable(one) for one in given.env),
        hide=tuple(path.resolve() for path in given.hide),
        with_parent=given.with_parent,
    )


def stand_in(text: str) -> StandIn:
    """`vllm=.venv-vllm/bin/python`; the path's links are kept, they lead to its environment."""
    match, _, path = text.rpartition("=")
    return StandIn(match=match, python=Path(os.path.abspath(path)))


def variable(text: str) -> tuple[str, str]:
    """`NAME=VALUE`, or `NAME` for the value that it has here."""
    name, given, value = text.partition("=")
    return name, value if given else os.environ.get(name, "")


def main() -> None:
    """Entry point."""
    options = parse(sys.argv[1:])
    try:
        run(options)
    except OSError as error:
        sys.exit(f"modal_plane: {error}")


if __name__ == "__main__":
    main()
