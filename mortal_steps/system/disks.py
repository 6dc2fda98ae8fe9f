"""What the system says of a disk: that it is full, or that it fails."""

import errno
import re

FULL_DISK = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FAULTY_DISK = {errno.EIO, errno.EROFS, errno.ENODEV, errno.ENXIO, errno.ESTALE, errno.EREMOTEIO}
"""What a disk answers that fails, was unplugged, or was mounted read-only after an error."""


def is_disk_error(error: BaseException) -> bool:
    """Return whether the disk is to blame: no space, a limit, or a fault."""
    return error_number(error) in FULL_DISK | FAULTY_DISK


def error_number(error: BaseException) -> int | None:
    """Return the system's number of an error: safetensors has it in its text, and torch.save's
    stream loses it, nearly always for lack of space."""
    if isinstance(error, OSError):
        return error.errno
    if named := re.search(r"\(os error (\d+)\)", str(error)):
        return int(named[1])
    of_torch = isinstance(error, RuntimeError) and "inline_container.cc" in str(error)
    return errno.ENOSPC if of_torch else None
