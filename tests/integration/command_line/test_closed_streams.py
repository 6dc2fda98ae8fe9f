"""A command whose standard streams were closed before it began, or lead to a full disk."""

import subprocess
import sys

import pytest

SOURCE = """
import os, sys
from mortal.terminal.output import open_closed_streams
open_closed_streams()
with open(sys.argv[1], "w") as file:
    print("to standard output", flush=True)
    sys.stderr.write("to standard error")
    os.write(1, b"as libraries write")
    os.write(2, b"as libraries write")
    assert sys.stdin.read() == "" or sys.argv[2]
    file.write(str(file.fileno()))
"""


@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", ">&-", "2>&- <&-"])
def test_no_file_takes_the_place_of_a_closed_stream(tmp_path, closed):
    file = tmp_path / "file"
    started = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-c", SOURCE, file, closed],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert started.returncode == 0, started.stderr
    assert int(file.read_text()) > 2


def test_a_summary_that_nobody_can_read_is_no_failure():
    source = (
        "from mortal.terminal.output import losing_what_cannot_be_printed\n"
        "with losing_what_cannot_be_printed():\n    print('completed')\nprint('more')"
    )
    with open("/dev/full", "w") as full:
        started = subprocess.run(
            [sys.executable, "-c", source],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (started.returncode, started.stderr) == (0, "")


def test_a_reader_that_goes_away_ends_nothing():
    """As `tee` does at a Ctrl-C, while the run is still to be saved."""
    source = (
        "import sys\n"
        "from rich.console import Console\n"
        "from mortal.terminal.console import console\n"
        "from mortal.terminal.output import say\n"
        "from mortal_flows.terminal import outlive_its_reader\n"
        "from mortal.terminal.output import losing_what_cannot_be_printed\n"
        "progress = Console(file=sys.stderr)\n"
        "outlive_its_reader(progress)\n"
        "assert sys.stdin.read() == ''\n"
        "for step in range(2):\n    progress.print(step)\n"
        "for text in ('saved', 'server left running'):\n    say(text)\n"
        "with losing_what_cannot_be_printed():\n    console.print('summary')\n"
        "raise SystemExit(7)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    started.stdout.close()
    started.stdin.close()
    assert started.wait() == 7


def test_a_summary_that_nobody_reads_any_more_is_no_failure():
    source = (
        "import sys\n"
        "from mortal.terminal.console import console\n"
        "from mortal.terminal.output import losing_what_cannot_be_printed\n"
        "assert sys.stdin.read() == ''\n"
        "with losing_what_cannot_be_printed():\n    console.print('summary')\n"
        "raise SystemExit(7)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    started.stdout.close()
    started.stdin.close()
    assert started.wait() == 7


def test_a_flow_run_goes_on_when_the_worker_that_reads_its_lines_is_killed():
    """Or `mortal schedule`, which reads those of its runs in the same way."""
    source = (
        "import sys\n"
        "from prefect.logging.configuration import setup_logging\n"
        "from prefect.logging.loggers import get_logger\n"
        "from mortal_flows.terminal import stand_alone\n"
        "setup_logging()\n"
        "stand_alone()\n"
        "logger = get_logger('a_flow')\n"
        "logger.warning('step 1')\n"
        "assert sys.stdin.read() == ''\n"
        "for step in (2, 3):\n    logger.warning(f'step {step}')\n"
        "raise SystemExit(7)"
    )
    started = subprocess.Popen(
        [sys.executable, "-c", source], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert b"step 1" in started.stderr.readline()
    started.stderr.close()
    started.stdin.close()
    assert started.wait() == 7
