"""Files and directories for this user alone: modes 0600 and 0700, under any umask.

A broker's files contain records, keys and transactional ids. Each file is created with its mode.
The umask belongs to the whole process, which an embedded broker shares with a program, so it stays
unchanged. A directory or file that exists keeps its mode; a file that is replaced is a new one.
"""

import errno
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700

SYNC_REFUSED: Final = {errno.EACCES, errno.EPERM, errno.EINVAL, errno.EROFS, errno.ENOTSUP}

ASIDE_SUFFIX: Final = "given-up"
"""Last part of the new name of an entry that stood in the way of a file."""


def denied_by_owner(path: Path) -> str | None:
    """Return the owner of a path that this user may not use; None if that is no reason."""
    try:
        owner = path.lstat().st_uid
    except OSError:
        return None
    user = os.geteuid()
    if user in (0, owner):
        return None
    return (
        f"{path} belongs to {_name_of(owner)}, and this process runs as {_name_of(user)}: a broker "
        f"of that user may have run here. Give the directory back, chown -R {_name_of(user)}, or "
        f"start as {_name_of(owner)}"
    )


def _name_of(user: int) -> str:
    import pwd  # only for an error

    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"


def make_directory(path: Path) -> None:
    """Make a directory, and those above it that are missing, on the disk. Raises OSError."""
    if path.is_dir():
        return
    for directory in reversed((path, *path.parents)):
        if not directory.exists():
            if directory.is_symlink():
                where = f"it is a link to {os.readlink(directory)}, where nothing is"
                raise FileNotFoundError(errno.ENOENT, where, str(directory))
            with suppress(FileExistsError):  # another process was faster
                directory.mkdir(DIRECTORY_MODE)
            sync_parent_entry(directory, os.fsync)
    if not path.is_dir():
        raise NotADirectoryError(20, os.strerror(20), str(path))


def open_private(path: Path, flags: int) -> int:
    """Open a file, made if `flags` say so, and return its descriptor. Raises OSError."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def replace_file(
    path: Path, temporary: Path, text: str | bytes, sync: Callable[[int], object]
) -> None:
    """Replace a file whole or not at all; the caller syncs its directory.

    Args:
        path: The file; may be missing.
        temporary: A name in the same directory that nothing else uses.
        text: Its new content.
        sync: Syncs the file of a descriptor.

    Something else of the temporary name, as a FIFO, is moved aside. Raises OSError.
    """
    _move_aside(temporary)
    content = text.encode() if isinstance(text, str) else text
    descriptor = open_private(temporary, os.O_WRONLY | os.O_CREAT)
    try:
        os.fchmod(descriptor, FILE_MODE)  # one that a kill left may have another
        write_whole(descriptor, content)
        # Behind the text, so that one that is there lends its blocks.
        os.ftruncate(descriptor, len(content))
        sync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)


def write_whole(descriptor: int, content: bytes) -> None:
    """Write all of it: a disk that is nearly full takes a part, and refuses the rest."""
    written = os.write(descriptor, content)
    while written < len(content):
        written += os.write(descriptor, content[written:])


def _move_aside(path: Path) -> None:
    """Rename an entry that is no regular file: a FIFO would hold its writer for ever."""
    with suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            path.rename(path.with_name(f"{path.name}.{ASIDE_SUFFIX}"))


def sync_directory(path: Path, sync: Callable[[int], object]) -> None:
    """Sync a directory, so that its names are on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        sync(descriptor)
    finally:
        os.close(descriptor)


def sync_parent_entry(path: Path, sync: Callable[[int], object]) -> None:
    """Sync the parent of a directory, if it can be synced, so that its name is on the disk.

    A parent that may only be written, or a file system above a mount point, may refuse the sync.
    Raises OSError: the disk fails.
    """
    try:
        sync_directory(path.parent, sync)
    except OSError as error:
        if error.errno not in SYNC_REFUSED:
            raise
