"""A place for directories in memory, where an fsync costs nothing."""

from pathlib import Path
from typing import Final

_SHARED_MEMORY = Path("/dev/shm")

MEMORY: Final = _SHARED_MEMORY if _SHARED_MEMORY.is_dir() else None
"""The `dir` of `tempfile`'s functions; None, the usual place, on a machine without it."""
