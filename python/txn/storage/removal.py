"""Removal of the directories of deleted topics, at a start."""

import errno
import shutil
import uuid
from pathlib import Path

from txn.storage.strays import DOOMED_SUFFIX, METADATA_FILE


def remove_partition(directory: Path, *, is_doomed: bool) -> None:
    """Remove a partition's directory, so that a kill leaves none under its name that looks whole.

    Args:
        directory: The directory.
        is_doomed: It has the name of one on its way out already.

    Raises:
        OSError: Something cannot be removed.
    """
    if not is_doomed:
        doomed = directory.with_name(f"deleted-0.{uuid.uuid4().hex}{DOOMED_SUFFIX}")
        try:
            directory = directory.rename(doomed)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _remove_files(directory)  # an overlay renames no directory of a lower layer
    shutil.rmtree(directory)


def _remove_files(directory: Path) -> None:
    """Remove all but the topic's id: by that the next start knows the rest for a deleted one's."""
    for path in directory.iterdir():
        if path.name == METADATA_FILE:
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
