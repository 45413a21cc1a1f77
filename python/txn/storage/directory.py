"""The data directory: its owner, its lock, and how its last use ended.

| file | meaning |
|---|---|
| `meta.properties` | the directory is a Kafka log directory, of this node |
| `.lock` | a process uses it; the content names the boot of the machine, and a digest |
| `.kafka_cleanshutdown` | it was stopped in order; the content is the broker epoch of the stop |

Invariant: the mark of a clean stop exists only between a clean stop and the next start. A directory
without the mark that was last used in another boot was in use when the machine went down. So
unsynced data may be gone. The same holds if the storage lost its cache in this boot: then
`LOST_CACHE` replaces the boot in `.lock`. The digest is that of `quorum-state`. Each start of
Apache Kafka writes another `quorum-state` and nothing in `.lock`, so a digest that differs shows
that Apache Kafka used the directory last.

Apache Kafka sees the lock, too. Its controller knows by the broker epoch that nothing was lost.

Source: KIP-631, Apache Kafka's log directory layout.
"""

import errno
import fcntl
import json
import os
import re
import stat
import struct
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, Self

from txn.errors import DirectoryError
from txn.logs import log
from txn.storage.ids import decode_id, encode_id
from txn.storage.plain_files import TEXT_BYTES_MAX, open_plain, read_plain
from txn.storage.private import (
    DIRECTORY_MODE,
    denied_by_owner,
    make_directory,
    replace_file,
    sync_directory,
    sync_parent_entry,
)

META = "meta.properties"
LOCK = ".lock"
CLEAN = ".kafka_cleanshutdown"
LOCK_BYTES_MAX = 4096
QUORUM_STATE = Path("__cluster_metadata-0", "quorum-state")
QUORUM_STATE_BYTES_MAX = 64 << 10
"""It has some hundred; a file of any size may be in its place."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BOOT_BYTES_MAX = 100
"""It is a UUID as text."""
LOST_CACHE = b"lost-cache"
"""In place of a boot: unsynced data may be gone, as if the directory was used in another one."""
UNKNOWN = b"unknown"
"""The digest of no `quorum-state`."""

NODE_ID = 1
"""Node id of a new directory, unless another is requested."""

PARTITION = re.compile(r".+-[0-9]+")
"""The name of a partition's directory."""

Identity = tuple[int, str, uuid.UUID]
"""Node id, cluster id and directory id."""

NO_BROKER_EPOCH = -1
"""No Apache Kafka broker was registered yet."""

WHOLE_FILE = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
"""Linux's `struct flock`: a write lock from the first byte to the last."""
WHOLE_FILE_TO_READ = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
"""A lock that keeps a broker out, and needs no right to write."""
NOTHING_LOCKED = struct.pack("hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, 0, 0, 0)
"""The same bytes, unlocked."""


@dataclass(frozen=True)
class Use:
    """The last use of a directory that was noted in `.lock`; empty if none was."""

    boot: bytes
    quorum_state: bytes
    """Digest of `quorum-state` then; empty where an earlier version has noted the use."""
    durability: bytes = b""
    """The promise of that broker; empty where an earlier version or no broker has noted it."""

    @classmethod
    def decode(cls, text: bytes) -> Self:
        """Read the text of `.lock`."""
        boot, quorum_state, durability, *_ = *text.split(b"\n"), b"", b"", b""
        return cls(boot, quorum_state, durability)

    @classmethod
    def now(cls, root: Path, durability: str) -> Self:
        """The use by this process. Raises OSError: the machine does not show its boot id."""
        return cls(_boot(), _digest(root / QUORUM_STATE), durability.encode())

    def encode(self) -> bytes:
        """The text of `.lock`."""
        return b"%b\n%b\n%b\n" % (self.boot, self.quorum_state, self.durability)

    def was_in_another_boot(self) -> bool:
        """Return True if the machine was started again since. Raises OSError as `now` does."""
        return self.boot not in (b"", _boot())

    def was_used_by_kafka_since(self, root: Path) -> bool:
        """Return True if an Apache Kafka has used the directory since."""
        return not self.boot or self.quorum_state not in (b"", _digest(root / QUORUM_STATE))

    def with_lost_cache(self) -> Self:
        """The same use, of which unsynced data may be gone."""
        return replace(
            self, boot=LOST_CACHE, quorum_state=self.quorum_state if self.boot else UNKNOWN
        )


def _boot() -> bytes:
    descriptor = os.open(BOOT_ID, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, BOOT_BYTES_MAX).strip()
    finally:
        os.close(descriptor)


def _digest(path: Path) -> bytes:
    try:
        state = read_plain(path, QUORUM_STATE_BYTES_MAX)
    except OSError:
        return b"none"
    import hashlib  # OpenSSL; few directories have the file

    return hashlib.sha256(state).hexdigest().encode()


NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a write for which the place has no room."""


class DataDirectory:
    """A data directory, locked from `open` to `release`."""

    def __init__(
        self, path: Path, lock: int, sync: Callable[[int], None], found: "_Found", durability: str
    ) -> None:
        self.path = path
        self._lock = lock
        self._sync = sync
        self.node_id, self.cluster_id, self.directory_id = found.identity
        self.was_clean = found.was_clean
        self.was_left_by_kafka = found.was_left_by_kafka
        self.power_failed = found.power_failed
        self.promised = found.promised
        """The durability of the broker that used it last and did not stop in order; empty where
        that is unknown. None: it stopped in order.
        """
        self._durability = durability
        self._use = found.use
        self._is_boot_noted = False
        self._kept: int | None = None
        """The descriptor that keeps cleaners of temporary files away."""

    @classmethod
    def open(
        cls,
        path: Path,
        *,
        node_id: int | None = None,
        durability: str = "",
        is_temporary: bool = False,
        takes_over: bool = True,
    ) -> Self:
        """Lock a data directory and read its identity; make it if need be.

        Args:
            path: The directory.
            node_id: The node it has to belong to; None takes the one it does.
            durability: The promise of the broker that uses it.
            is_temporary: It goes with its broker, so nothing in it is synced.
            takes_over: False for a caller that reads, and keeps others out. The directory must
                exist, and may be on a file system that is mounted for reading alone. The next
                start finds it as it was.

        Raises:
            DirectoryError: it is in use, belongs to something else, or cannot be used.
        """
        sync = _no_sync if is_temporary else os.fsync
        lock = _locked(path, makes=takes_over)
        try:
            identity = _identity(path, node_id, sync)
            was_clean = _is_marked_clean(path)
            use = Use.decode(os.pread(lock, LOCK_BYTES_MAX, 0))
            found = _Found(
                identity,
                was_clean=was_clean,
                was_left_by_kafka=use.was_used_by_kafka_since(path),
                power_failed=not was_clean and use.was_in_another_boot(),
                promised=None if was_clean else use.durability.decode(errors="replace"),
                use=use,
            )
            directory = cls(path, lock, sync, found, durability)
            if was_clean and takes_over:
                directory._remove_clean_mark()
            if takes_over:
                _warn_if_open_to_others(path)
            if is_temporary:
                directory._keep()
        except BaseException as error:
            os.close(lock)
            if isinstance(error, OSError):  # of a write it has no name, as one of the output
                raise _unusable(path, path, error) from error
            raise
        return directory

    @property
    def last_stop(self) -> str:
        """The end of the broker before: `clean`, `power_failure` or `kill`.

        `none` says that no broker of txn used it last: it is new, or Apache Kafka's.
        """
        if self.was_clean:
            return "clean"
        if self.power_failed:
            return "power_failure"
        return "none" if self.was_left_by_kafka else "kill"

    def note_boot(self) -> None:
        """Record that the directory is used in this boot of the machine.

        To be called once recovery has dealt with `power_failed`: a recovery that is cut short
        has to find it again. Nobody else notes a use while the directory is locked, so one note
        is enough.
        """
        if self._is_boot_noted:
            return
        self._note(Use.now(self.path, self._durability))
        self._is_boot_noted = True

    def note_lost_cache(self) -> None:
        """Record that the storage lost unsynced data: this start counts as one after a power
        failure.

        So does each later one, until a recovery comes to its end (`note_boot`). Idempotent.
        Raises DirectoryError, OSError.
        """
        self._note(self._use.with_lost_cache())
        with suppress(FileNotFoundError):
            (self.path / CLEAN).unlink()
            sync_directory(self.path, self._sync)
        self._is_boot_noted = self.was_clean = False
        self.power_failed = True

    def _note(self, use: Use) -> None:
        """Note a use, durably."""
        text = use.encode()
        try:
            os.pwrite(self._lock, text, 0)
            os.ftruncate(self._lock, len(text))
            self._sync(self._lock)
        except OSError as error:
            raise _unusable(self.path, self.path / LOCK, error) from error

    def mark_clean(self, broker_epoch: int = NO_BROKER_EPOCH) -> None:
        """Record that every log was closed in order; the next start need not scan them.

        `broker_epoch` is that of the newest registration of an Apache Kafka broker with this
        directory: without it the next one would start as if it had lost records.
        """
        mark = self.path / CLEAN
        temporary = mark.with_suffix(".tmp")
        text = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
        replace_file(mark, temporary, text, self._sync)
        sync_directory(self.path, self._sync)

    def release(self) -> None:
        """Unlock the directory for other processes.

        Unlocked as well as closed: a fork that still has the descriptor would keep the lock.
        """
        fcntl.fcntl(self._lock, fcntl.F_OFD_SETLK, NOTHING_LOCKED)
        os.close(self._lock)
        if self._kept is not None:
            os.close(self._kept)

    def _keep(self) -> None:
        """Keep systemd-tmpfiles from removing old files: it skips a locked directory.

        Source: systemd's "Using /tmp/ and /var/tmp/ Safely".
        """
        self._kept = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with suppress(OSError):  # a file system without such locks
            fcntl.flock(self._kept, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _remove_clean_mark(self) -> None:
        """Remove the mark; from here on only the boot says that nothing was lost."""
        self.note_boot()
        (self.path / CLEAN).unlink()
        sync_directory(self.path, self._sync)


class _Found(NamedTuple):
    """The contents of a directory when it was locked."""

    identity: Identity
    was_clean: bool
    was_left_by_kafka: bool
    power_failed: bool
    promised: str | None
    use: Use


def _locked(path: Path, *, makes: bool) -> int:
    """Lock a directory, which is made if asked for; return the descriptor of the lock."""
    try:
        if makes:
            make_directory(path)
            _refuse_inaccessible_files(path)
        elif not (path / META).is_file():
            raise DirectoryError(f"{path} is no data directory: it holds no {META}", path=str(path))
        _refuse_foreign_files(path)
        lock, whole_file = _open_lock(path / LOCK, makes=makes)
    except OSError as error:
        raise _unusable(path, path / LOCK, error) from error
    try:
        # Java takes locks of this kind; one of an open file, unlike one of a process, also
        # keeps out a second broker of this process.
        fcntl.fcntl(lock, fcntl.F_OFD_SETLK, whole_file)
    except OSError as error:
        os.close(lock)
        raise DirectoryError(
            f"data directory {path} is in use by another broker. "
            "Stop that one first, or give another directory",
            path=str(path),
        ) from error
    return lock


def _unusable(path: Path, place: Path, error: OSError) -> DirectoryError:
    """Return the error for a directory; `place` is its file where the error names none."""
    place = Path(error.filename or place)
    reason = denied_by_owner(place) if error.errno == errno.EACCES else None
    if reason is None:
        way_out = "Give a directory this user may read and write"
        if error.errno in NO_ROOM:
            way_out = "Make room there, or give another directory"
        reason = f"{place}: {error.strerror or error}. {way_out}"
    return DirectoryError(f"cannot use {path} as data directory: {reason}", path=str(path))


def _refuse_inaccessible_files(path: Path) -> None:
    """Refuse a directory that has files which this user may not use.

    Found one by one they look like damage, or like a disk that fails. Raises OSError.
    """
    with os.scandir(path) as entries:
        kept = [
            (entry.path, is_directory)
            for entry in entries
            # Others, such as lost+found, belong to no partition.
            if not (is_directory := entry.is_dir()) or PARTITION.fullmatch(entry.name)
        ]
    for name, is_directory in [(str(path), True), *sorted(kept)]:
        rights = os.R_OK | os.W_OK | (os.X_OK if is_directory else 0)
        if os.access(name, rights, effective_ids=True) or not os.path.lexists(name):
            continue
        reason = denied_by_owner(Path(name))
        if reason is not None:
            raise DirectoryError(f"cannot use {path} as data directory: {reason}", path=str(path))


def _open_lock(path: Path, *, makes: bool) -> tuple[int, bytes]:
    """Open `.lock`; return its descriptor and the lock to take.

    Raises OSError. For a caller that reads, one that it may not write to is enough.
    """
    try:
        return open_plain(path, os.O_RDWR | os.O_CREAT), WHOLE_FILE
    except OSError as error:
        if makes or error.errno not in (errno.EROFS, errno.EACCES):
            raise
    if os.path.lexists(path):
        return open_plain(path, os.O_RDONLY), WHOLE_FILE_TO_READ
    # No broker can use the directory here; an empty file stands for the lock of none.
    return os.memfd_create(LOCK), WHOLE_FILE


def _refuse_foreign_files(path: Path) -> None:
    """Refuse a directory that holds files but is no log directory."""
    if os.path.lexists(path / META):
        return
    strangers = sorted(
        entry.name for entry in path.iterdir() if entry.name not in (LOCK, META + ".tmp")
    )
    if strangers:
        raise DirectoryError(
            f"{path} holds {strangers[0]!r} but no {META}: it is no data directory of "
            "txn or Kafka. Give an empty or a new directory",
            path=str(path),
        )


def _identity(path: Path, node_id: int | None, sync: Callable[[int], None]) -> Identity:
    """Read the identity of a directory, or give a new one its own."""
    meta = path / META
    if not os.path.lexists(meta):
        node_id = NODE_ID if node_id is None else node_id
        cluster_id, directory_id = encode_id(uuid.uuid4()), uuid.uuid4()
        text = (
            f"#\nversion=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
            f"directory.id={encode_id(directory_id)}\n"
        )
        temporary = meta.with_suffix(".properties.tmp")
        try:
            replace_file(meta, temporary, text, sync)
            sync_directory(path, sync)
            sync_parent_entry(path, sync)  # a kill may have come between its making and a sync
        except OSError as error:
            raise _unusable(path, meta, error) from error
        return node_id, cluster_id, directory_id
    return read_identity(meta, node_id)


def read_identity(meta: Path, node_id: int | None = None) -> Identity:
    """Read the identity of a directory from its `meta.properties`.

    Raises:
        DirectoryError: it cannot be read, or the node is another than the one that is asked for.
    """
    try:
        lines = read_plain(meta, TEXT_BYTES_MAX).decode().splitlines()
        pairs = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
        stored_id = int(pairs["node.id"])
        identity = stored_id, pairs["cluster.id"], decode_id(pairs["directory.id"])
    except (OSError, ValueError, KeyError) as error:
        raise DirectoryError(
            f"cannot read {meta}: {error!r}. Put back a copy of the file: it names the cluster "
            "and the node this directory belongs to",
            path=str(meta),
        ) from error
    if node_id not in (None, stored_id):
        raise DirectoryError(
            f"{meta.parent} belongs to node {stored_id}, this broker is node {node_id}. "
            f"Start it with node.id={stored_id}",
            path=str(meta.parent),
        )
    return identity


def _is_marked_clean(path: Path) -> bool:
    mark = path / CLEAN
    try:
        os.close(open_plain(mark, os.O_RDONLY))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise DirectoryError(
            f"cannot read {mark}: {error.strerror or error}. Remove it: then every log is "
            "checked as after a crash",
            path=str(mark),
        ) from error
    return True


def _warn_if_open_to_others(path: Path) -> None:
    """Warn about rights that are wider than needed; somebody chose them, so they stay."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & ~DIRECTORY_MODE:
        log.warning("directory.open_to_others", path=str(path), mode=f"{mode:04o}")


def _no_sync(_descriptor: int) -> None:
    """Stands in for `os.fsync`, and does nothing."""
