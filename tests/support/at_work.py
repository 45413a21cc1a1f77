"""The files of a broker at work."""

import shutil
from pathlib import Path


def copy_at_work(data: Path, to: Path) -> Path:
    """Copy the directory of a broker that runs, as a kill would leave it; return the copy.

    A file that is about to replace another is left out: it may be gone before it is copied.
    """
    return Path(shutil.copytree(data, to, ignore=shutil.ignore_patterns("*.tmp")))
