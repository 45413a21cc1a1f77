"""Reading the small files that settings name: certificates, secrets, properties."""

import os
import stat
from typing import Final

FILE_BYTES_MAX: Final = 1 << 20


def read_small_file(path: str | os.PathLike[str]) -> bytes:
    """Read a regular file of `FILE_BYTES_MAX` at most. Raises OSError or ValueError."""
    # A pipe without a writer would keep the opening waiting.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError("it is no regular file")
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise ValueError(f"it has more than {FILE_BYTES_MAX} bytes")
    return data


def reason_of(error: OSError | ValueError) -> str:
    """Why `read_small_file` could not read."""
    return (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
