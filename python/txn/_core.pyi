"""The Rust extension: logs on disk, sockets, and rows as columns.

Every call that may block (disk, socket, lock) releases the interpreter. Nothing here
decides a rule: `ProducerStateManager` is how a partition's log asks Python, `Server.take` is how
requests other than Produce and Fetch reach Python.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, TypedDict, final

# ---------------------------------------------------------------- errors

class CorruptLogError(Exception):
    """Stored bytes are damaged; args: (message, path, position)."""

class LogRefusedError(Exception):
    """The log or its producer state refused a batch; args: (message, kafka_error_code)."""

class KafkaError(Exception):
    """A Kafka node answered with an error, or could not be reached; args: (message,
    kafka_error_code, retriable).
    """

def take_pending_exception() -> BaseException | None:
    """Return and clear the exception that C code set before it called Python; None if there is none."""

def crc32c(data: bytes) -> int:
    """Return the CRC-32C (Castagnoli) of bytes."""

def error_codes() -> list[tuple[int, str, bool, str]]:
    """List Kafka's error codes by number: number, Kafka's name, whether it is retriable, advice."""

def apis() -> list[tuple[int, str, tuple[int, int] | None]]:
    """List Kafka's APIs by key: key, Kafka's name, first and last version that reactors answer."""

# ---------------------------------------------------------------- the log

AbortedTxn = tuple[int, int, int, int]
"""(producer_id, first_offset, last_offset, last_stable_offset), all inclusive."""

ReplayedBatch = tuple[int, int, int, int, int, int, int, int]
"""(base_offset, last_offset, producer_id, producer_epoch, base_sequence, max_timestamp_ms, kind,
coordinator_epoch).

kind: 0 idempotent data, 1 transactional data, 2 abort marker, 3 commit marker.
coordinator_epoch is -1 but for markers. Only batches with a producer id are listed."""

SealedSegment = tuple[int, int, int, int, int]
"""(base_offset, end_offset, size in bytes, timestamp of the first batch, largest timestamp);
timestamps are -1 where there is none."""

Expired = tuple[int, int]
"""(log start without the expired segments, number of the log's truncations so far)."""

AdmitResult = tuple[int, int, AbortedTxn | None]
"""A producer state's decision on one batch: (kind, value, aborted).

(0, first_unstable_offset or -1, aborted transaction that this marker ends or None)  admit
(1, base offset of the batch already stored, None)                                   duplicate
(2, 0, None)   the partition has first to join the transaction (client batches only)
(3, kafka_error_code, None)                                                          refuse"""

class ProducerStateManager(Protocol):
    """One partition's rules (`txn.partition.ProducerStateManager`), called under the partition's lock.

    It must not call any log. `admit` and `admit_marker` change its state at once: if the
    write that follows fails, the log restores and replays it before it takes another batch.
    """

    def admit(
        self,
        origin: int,
        next_offset: int,
        producer_id: int,
        producer_epoch: int,
        base_sequence: int,
        record_count: int,
        max_timestamp_ms: int,
        is_transactional: bool,
        transactional_id_hash: int | None = None,
    ) -> AdmitResult:
        """Decide on a batch with a producer id. origin: 0 coordinator, 1 client under transaction
        version 1, 2 under 2. transactional_id_hash: of the request of a client's transactional
        batch, see `txn.wire.hashing.java_hash`.
        """
    def admit_marker(
        self,
        next_offset: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        timestamp_ms: int,
    ) -> AdmitResult: ...
    def forget_below(self, log_start_offset: int) -> None:
        """Forget the aborted transactions that ended below an offset: their records are gone."""
    def forget_aborted(self, last_offsets: Sequence[int]) -> None:
        """Forget the aborted transactions with these markers: compaction leaves nothing of them,
        and a reader told of one would wait for its marker.
        """
    def last_batches(self) -> list[tuple[int, int, int]]:
        """(producer_id, producer_epoch, last_offset) of the batches by which producers are known;
        last_offset -1: the newest marker of that epoch. Compaction keeps them.
        """
    def snapshot(self) -> bytes:
        """The producer state as the bytes of Kafka's `.snapshot` file."""
    def restore(self, snapshot: bytes | None, aborted: Sequence[AbortedTxn]) -> None:
        """Begin recovery: forget everything, load a snapshot (None: empty) and the entries of the
        transaction indexes.

        Raises ValueError when the snapshot is damaged; the log then tries an older one."""
    def replay(self, batches: Sequence[ReplayedBatch]) -> Sequence[AbortedTxn]:
        """Fold stored batches in, in order; return the aborted transactions they complete, which
        the log writes to `.txnindex`.
        """
    def backfill(self, batches: Sequence[ReplayedBatch]) -> None:
        """Recall batches older than the snapshot, so that producers get their last five back.
        Changes nothing else.
        """
    def first_unstable_offset(self) -> int:
        """First offset of the oldest open transaction, or -1."""

@final
class PartitionLog:
    """One partition's log: Kafka's segment files and indexes in one directory.

    The directory and its files are made by the first append. The high watermark of a sole replica
    is its log end. Thread-safe.
    """

    def __new__(
        cls,
        directory: str,
        producer_state: ProducerStateManager,
        settings: dict[str, Any] | None = None,
        *,
        partition_metadata: str | None = None,
        was_clean: bool = False,
        power_failed: bool = False,
        recovery_point: int = 0,
        high_watermark: int = 0,
        log_start_offset: int | None = None,
        was_left_by_kafka: bool = False,
        cleaned_end: int | None = None,
        role: Literal["sole_replica", "leader", "follower"] = "sole_replica",
        syncs_before_close: bool = True,
        lock_file: tuple[int, int] | None = None,
    ) -> PartitionLog:
        """Open and recover a log: a clean directory trusts its newest snapshot, any other is
        scanned behind its recovery point. A torn write at its end is cut, see `cuts`.

        settings: parsed values by Kafka's names of topic settings; names that mean nothing to a
        log are passed over, those left out have Kafka's defaults.
        recovery_point, high_watermark, log_start_offset: the log's entries in Kafka's checkpoints.
        They prove how far it has come: a log that ends below is damaged, unless the power failed.
        power_failed: unsynced bytes may be torn anywhere, or missing.
        was_left_by_kafka: segments may be gone below which its log start was not noted yet.
        cleaned_end: its entry there: it was compacted up to here, so offsets may be missing between
        batches.
        role: its role in its partition from the start. Unless it is the sole replica,
        `high_watermark` is also its high watermark, as far as the log reaches.
        partition_metadata: text of the `partition.metadata` file, written with the directory.
        syncs_before_close: written bytes are on the disk before an idle file is closed; not needed
        where `sync` is not relied on.
        lock_file: device and inode of the data directory's `.lock`; no file is made where it is
        another. Raises CorruptLogError, OSError; nothing is cut then."""
    def cuts(self) -> list[tuple[str, int, int, int, str]]:
        """The parts cut off when it was opened: file, position, bytes, first offset, and the
        reason.
        """
    @property
    def directory(self) -> str: ...
    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int:
        """End of the records that every in-sync replica has; at most the log end."""
    @property
    def log_end_offset(self) -> int: ...
    @property
    def last_stable_offset(self) -> int:
        """Exclusive end of the records that a read_committed reader may see; at most the high
        watermark.
        """
    @property
    def role(self) -> Literal["sole_replica", "leader", "follower"]: ...
    def set_role(
        self, role: Literal["sole_replica", "leader", "follower"], leader_epoch: int
    ) -> int:
        """Take a role under a leader epoch; return the log end, where a leader's epoch begins. The
        high watermark stays, but that of a sole replica is its log end.
        """
    @property
    def latest_epoch(self) -> int | None:
        """The latest leader epoch that it has a batch of, or led in."""
    def append_as_follower(
        self, batches: bytes, leader_epoch: int, lower_checkpoints: Callable[[int], object]
    ) -> int:
        """Store batches that a leader sent for the log end, as they are; return the new log end.
        All from the first batch of a later epoch than `leader_epoch` is left out. An empty log
        whose first batch reaches over its start is truncated fully first, see `truncate_to`.
        Raises LogRefusedError, OSError.
        """
    def truncate_to(self, offset: int, lower_checkpoints: Callable[[int], object]) -> int:
        """Remove every batch of a follower that ends above `offset`, durably; return the log end.

        `lower_checkpoints` is called with a bound before any file changes, under the log's locks.
        It lowers every checkpoint entry of the log that is above, durably. It must not append to
        the log, sync it or remove of it. Raises LogRefusedError, OSError.
        """
    def truncate_fully_and_start_at(
        self, offset: int, lower_checkpoints: Callable[[int], object]
    ) -> int:
        """Remove everything of a follower and begin at `offset`; return it. The rest is as with
        `truncate_to`.
        """
    @property
    def truncations(self) -> int:
        """Number of times that offsets were taken back since it was opened."""
    def raise_high_watermark(self, high_watermark: int) -> bool:
        """Raise the high watermark, to the log end at most; return whether it rose."""
    @property
    def leader_epoch(self) -> int:
        """The epoch that batches are stamped with; from the start that of the newest batch, or 0."""
    def lead(self, leader_epoch: int) -> None:
        """Lead in an epoch from now on, if it is a later one."""
    def epoch_of(self, offset: int) -> int:
        """The leader epoch in which an offset was or will be written."""
    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        """The latest epoch up to the given one and the offset where it ends; None for one to come."""
    @property
    def recovery_point(self) -> int:
        """Everything below is on the disk: batches, and the indexes of sealed segments."""
    @property
    def proven_end(self) -> int:
        """The high watermark; once a sync has failed, the one that was on the disk before it."""
    @property
    def size_bytes(self) -> int: ...
    def sealed_segments(self) -> list[SealedSegment]:
        """All segments but the active one, oldest first. Raises CorruptLogError, OSError."""
    def configure(self, settings: dict[str, Any]) -> None:
        """Change all settings, as they are given to the constructor, for the appends that follow."""
    def delete_records(self, offset: int, note_start: Callable[[int], object]) -> int:
        """Move the log start up to `offset`, never down; return the log start. Segments wholly
        below are removed.

        `note_start` is called before, once everything below is on the disk, under a lock of the
        log. It notes the log start durably, and must not remove of the log. Raises IndexError
        beyond the high watermark, LogRefusedError, OSError.
        """
    def append_records(
        self,
        records: Sequence[tuple[bytes | None, bytes | None]],
        timestamp_ms: int,
        producer: tuple[int, int] | None,
    ) -> int:
        """Append (key, value) records of a coordinator as one batch; return its base offset. With a
        producer id and epoch the batch is of its transaction. Raises LogRefusedError, OSError.
        """
    def append(self, batch: bytes) -> int:
        """Append one encoded batch of a coordinator (origin 0); return its base offset. Raises
        LogRefusedError, OSError.
        """
    def append_of_client(
        self, batch: bytes, transaction_version: int, transactional_id_hash: int | None
    ) -> tuple[int, int]:
        """Append one encoded batch as a Produce does. Return 0 and its base offset; 1 and the base
        offset where it is stored already; 2 and 0 if its partition has to join the transaction; or 3
        and the error code of its refusal. Raises LogRefusedError if the log is closed, OSError.
        """
    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        timestamp_ms: int,
    ) -> int:
        """Append a transaction marker; return its offset. Raises LogRefusedError, OSError."""
    def read(self, start: int, max_bytes: int) -> bytes:
        """Whole stored batches from the one containing `start`, at least one if there is one.
        Raises IndexError if out of range.
        """
    def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """Producer id and first offset of each aborted transaction that overlaps `[start, end)`."""
    def offset_for_timestamp(self, timestamp_ms: int, end: int) -> tuple[int, int] | None:
        """(offset, timestamp) of the first record below `end` at or after the time; exact to the
        record.
        """
    def offset_of_max_timestamp(self, end: int) -> tuple[int, int] | None: ...
    def settle(self) -> None:
        """Bring the rules back to the stored batches, if an append failed.

        Raises OSError if that fails.
        """
    def sync(self) -> None:
        """fdatasync batches appended since the last sync; nothing of a deleted log.

        Raises OSError.
        """
    def find_expired(self, now_ms: int) -> Expired | None:
        """Find the segments that retention no longer keeps. Raises CorruptLogError,
        LogRefusedError, OSError.
        """
    def remove_expired(self, expired: Expired, note_start: Callable[[int], object]) -> int:
        """Remove segments that were found to be expired; return how many. None go if the log was
        truncated since. `note_start` is as in `delete_records`. Raises LogRefusedError, OSError.
        """
    def close(self) -> None:
        """Sync, write the producer snapshot, and close. Later calls raise LogRefusedError."""
    def delete(self) -> None:
        """Close and remove the directory."""

@final
class RecordCounter:
    """Counts the committed records of a log by the headers of its batches, and remembers the
    counts. Markers, records of aborted transactions and offsets without a record are none.
    Thread-safe.
    """

    def __new__(cls, log: PartitionLog) -> RecordCounter: ...
    def count(self, offsets: Sequence[int], seconds: float) -> tuple[int, list[int | None]]:
        """The last stable offset, and the committed records from each offset up to it; None where
        the count takes longer than `seconds`: the next call goes on. Offsets that the next call
        does not ask for are forgotten. Raises CorruptLogError, LogRefusedError, OSError.
        """

def tick(
    logs: Sequence[PartitionLog], durability: Durability
) -> tuple[list[tuple[str, str, int]], list[tuple[str, str | None]]]:
    """Sync sealed segments and bytes that have waited for `flush.ms`, remove files whose delay is
    over. For a worker, once a second or so.

    Return the damage that readers have met since: (message, path, position). Then come the logs
    that began to refuse batches, with the reason, or take them again, with None."""

def raise_descriptor_limit() -> int:
    """Raise this process's soft limit of open files to the hard one; return the limit, 2**64 - 1
    without one. Raises OSError; the limit is as before."""

def keep_freed_memory_below(bytes: int) -> None:
    """Keep at most so much of each thread's freed memory, as far as the C library can; the rest
    goes back to the system."""

def set_open_files_max(max: int) -> None:
    """Set how many segment files this process has open at a time; answers under way may keep
    more for a moment."""

def open_files() -> int:
    """Number of segment files that this process has open."""

def close_idle_files() -> None:
    """Close the segment files that were not used since the last call."""

def sync_count() -> int:
    """Number of times that this process has forced a file of a log to the disk."""

def sync_metrics() -> tuple[Times, int]:
    """Durations of those syncs, and the number under way."""

Times = tuple[list[int], float]
"""Counts by bucket (one more than `bucket_bounds_s` for the longest), and the sum of all in
seconds."""

def bucket_bounds_s() -> list[float]:
    """The upper bounds of the buckets of times, inclusive, in seconds."""

DiskFault = tuple[int, int]
"""Number of bytes of a write that arrive all the same, and the error number."""

def watch_disk(
    directory: str, witness: Callable[[str, str, str, int, bytes], DiskFault | None]
) -> None:
    """Show a function every change to files of logs below a directory, before it is made; for tests.

    It gets the kind of the change ("create", "write", "truncate", "rename", "remove", "sync",
    "sync_directory"), the path, the new path of a rename, the position of a write or the new length,
    and the bytes. A fault that it returns takes the place of the change.
    """

def release_disk(directory: str) -> None:
    """End a `watch_disk`."""

@final
class Cleaner:
    """Resources that all compactions of a broker share: memory for keys, and speed."""

    def __new__(cls, *, map_bytes: int, load_factor: float, bytes_per_second: float) -> Cleaner:
        """`map_bytes` is for each of the compactions at one time, filled to `load_factor`."""
    def clean(
        self,
        log: PartitionLog,
        *,
        first_dirty_offset: int,
        end: int,
        delete_retention_ms: int,
        now_ms: int,
    ) -> tuple[int, int, int, int, tuple[int, str, int, int, str] | None] | None:
        """Compact the sealed segments of a log below `end`: (where the dirty part begins now, bytes
        before, bytes after, keys, unreadable). None if it was stopped, or segments were removed
        meanwhile.

        `unreadable` counts the batches from `first_dirty_offset` on whose records cannot be read;
        they stay as they are. It names path, position, offset and fault of the first.

        Not to be called for the same log by two threads at once. Raises CorruptLogError, OSError,
        ValueError (the producer state failed). The log is whole then."""
    def stop(self) -> None:
        """End the work under way, soon, and any work begun later."""

LossPlanTuple = tuple[int | None, int, int, int, int, list[str], list[tuple[str, int, int]]]
"""(last_kept, position, kept_end, next_offset, leader_epoch, in_the_way, given_up).

last_kept is the base offset of the last segment that is kept, or None; position is its end.
kept_end is the offset after the last batch that is kept, and leader_epoch that batch's.
next_offset is the offset of the next record. in_the_way lists paths that stand in the place of a
file and are none. given_up lists the parts that go: (file, position, bytes)."""

def examine_log(
    directory: str, settings: dict[str, Any], past: dict[str, Any]
) -> list[tuple[str, int, int, int, str]] | None:
    """Return the parts that opening a log would cut, see `PartitionLog.cuts`, and change nothing.

    None: opening it finishes a cleaning that was cut short, and only that was examined. past:
    arguments of `PartitionLog` by their names. Raises CorruptLogError, OSError, as opening it
    would."""

def plan_loss(
    directory: str,
    settings: dict[str, Any],
    past: dict[str, Any],
    first_lost: tuple[int, int] | None,
) -> LossPlanTuple:
    """Find the longest sound beginning of a log, and where it has to go on. Raises OSError.

    `first_lost` names a batch that is not kept: base offset of its segment, and a position in it.
    """

def carry_out_loss(directory: str, plan: LossPlanTuple) -> int:
    """Give up the parts that a plan does not keep, durably; may be repeated. Return the base offset
    of the first segment of the rest. Raises OSError."""

def encode_batch(
    records: Sequence[tuple[bytes | None, bytes | None]],
    timestamp_ms: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    is_transactional: bool = False,
) -> bytes:
    """One uncompressed record batch v2 with base offset 0, to be stamped by `append`."""

DecodedBatch = tuple[int, int, int, int, int, list[tuple[int, int, bytes | None, bytes | None]]]
"""(base_offset, last_offset, producer_id, producer_epoch, kind, records as (offset, timestamp_ms,
key, value)).

kind: as ReplayedBatch, and -1 for data without a producer id."""

def decode_batches(data: bytes) -> list[DecodedBatch]:
    """Decode whole batches, all codecs; a partial batch at the end is left out. Raises
    CorruptLogError.
    """

# ---------------------------------------------------------------- looking into segments

SeenBatch = tuple[
    int, int, int, int, int, int, int, tuple[int, int, int], tuple[int, int], tuple[int, str | None]
]
"""(position, size, base_offset, last_offset, record_count, leader_epoch, attributes, (producer_id,
producer_epoch, base_sequence), (base_timestamp_ms, max_timestamp_ms), (stored crc, its fault or
None))."""

Damage = tuple[int, int, str]
"""Bytes that are no batch: (position, where the next batch begins or the file ends, the fault)."""

SeenRecord = tuple[int, int, bytes | None, bytes | None, list[tuple[bytes, bytes | None]]]
"""(offset, timestamp_ms, key, value, headers)."""

Fault = tuple[int, int, int, bool, str]
"""(file, position, end, True if it may be a torn write, the fault); file: 0 `.log`, 1 `.index`, 2
`.timeindex`."""

@final
class SegmentReader:
    """A `.log` file, read batch by batch; damage is stepped over. Never writes."""

    def __new__(cls, path: str) -> SegmentReader: ...
    def batches(self, position: int, bytes: int) -> tuple[list[SeenBatch], list[Damage], int]:
        """The batches of about `bytes` bytes from a batch's position on, the damage between them,
        and the position to go on from. Raises OSError.
        """
    def records(self, position: int) -> list[SeenRecord]:
        """The records of the batch at a position, control records too; its checksum is not looked
        at. Raises CorruptLogError, OSError.
        """

@final
class SegmentCheck:
    """A segment's batches held against each other, and its indexes against them. Never writes."""

    def __new__(
        cls, path: str, base_offset: int, index: bytes, time_index: bytes, *, is_deep: bool
    ) -> SegmentCheck:
        """Open a segment; the indexes are the bytes of their files. Raises OSError."""
    def advance(self, bytes: int) -> list[ReplayedBatch]:
        """Check about `bytes` bytes more; the batches with a producer id, up to the first damage.
        Raises OSError.
        """
    @property
    def position(self) -> int: ...
    @property
    def end(self) -> int:
        """Size of the file when it was opened."""
    @property
    def batches(self) -> int:
        """Sound batches so far."""
    @property
    def records(self) -> int: ...
    @property
    def first_offset(self) -> int | None:
        """Base offset of the first sound batch."""
    @property
    def next_offset(self) -> int:
        """The offset after the last sound batch; before the first, the segment's base offset."""
    @property
    def is_damaged(self) -> bool: ...
    @property
    def leader_epochs(self) -> list[tuple[int, int, int, int]]:
        """Batches in a row with the same epoch: (leader_epoch, position, first_offset,
        last_offset).
        """
    @property
    def gaps(self) -> list[tuple[int, int, int]]:
        """Where offsets are missing, and not because of damage: (position, expected offset, base
        offset found); the first fifty, and the last.
        """
    @property
    def faults(self) -> list[Fault]:
        """The first fifty."""
    @property
    def faults_left_out(self) -> int: ...

# ---------------------------------------------------------------- sockets

ClientRequest = tuple[int, int, int, int, str | None, bytes, str, int, str | None, int, object]
"""(token, api_key, api_version, correlation_id, client_id, body after the request header, client
host, index of the listener, principal, number of the connection, its attachment). A connection
without one brings its `ClientPresence`, and its principal, which is None else. A connection that
was accepted later has a higher number. SaslAuthenticate of version -1 is a bare token of SASL.
"""

@final
class ClientPresence:
    """Tells whether the client of a connection is there. Any thread may ask."""

    def has_left(self) -> bool:
        """Return True if it sends no more: it closed the connection, or that is closed."""

TlsFiles = tuple[bytes, bytes, str | None, bytes, str, Sequence[str], Sequence[str]]
"""(certificate chain, private key, its password, trusted certificates, client auth, protocols): PEM;
"none", "requested" or "required"; "TLSv1.2" and "TLSv1.3"."""

@final
class TlsContext:
    """The TLS of one listener: its certificate and its rules for clients'."""

    def __new__(cls, files: TlsFiles, principal_of: Callable[[str], str | None]) -> TlsContext:
        """Store the certificates. Raises ValueError, whose text has no part of a key.

        `principal_of` is called on a reactor with the subject of a client's certificate, in the
        form of RFC 2253. None refuses the client, and so does an exception (reported as
        unraisable).
        """
    def replace(self, files: TlsFiles) -> None:
        """Exchange the certificates for connections that come from now on. Raises ValueError; the
        earlier ones stay then.
        """
    @property
    def expires_at(self) -> int:
        """When the certificate expires, in seconds since the epoch."""
    @property
    def identity(self) -> tuple[str, list[bytes]]:
        """The certificate's subject in the form of RFC 2253, and its alternative names as DER."""

class ServerMetrics(TypedDict):
    """The counts of a server since it was made, and its waiting requests now."""

    apis: list[tuple[int, int, Times, Times, Times, Times, Times]]
    """(api key, received, queue, local, remote, send, total): the times of each API that was ever
    requested. -1 stands for all keys that Kafka does not have. The count of each time is the
    number of requests that reached its end: dequeued, decided, durable, sent, sent."""
    reactors: int
    sockets: list[tuple[int, int, int, int, int, int]]
    """(listener, reactor, connections, accepted ones, bytes received, bytes sent), reactor 0 first."""
    listeners: list[tuple[int, list[tuple[str, int]], list[tuple[str, int]], float]]
    """(listener, connections refused by reason, connections closed by reason, seconds in which it
    accepted nothing)."""
    tls: list[tuple[int, int, list[tuple[str, int]], int]]
    """(listener, handshakes, failed ones by reason, expiry of the certificate in seconds since the
    epoch)."""
    produced_batches: int
    produced_records: int
    produced_bytes: int
    failed_produces: int
    """Partitions of Produce requests whose batch was refused."""
    fetched_bytes: int
    queued_requests: int
    """Requests and parked Produce requests that wait for `take` and `take_joins`."""
    delayed_fetches: int
    """Fetches that wait for bytes."""
    delayed_produces: int
    """Produce requests whose answer waits for the disk."""
    delayed_joins: int
    """Produce requests that wait for the coordinator."""
    unauthenticated_connections: int
    """Connections closed for a request before authentication."""
    expired_connections: int
    """Connections closed for a request after their session."""
    throttled: list[tuple[str, int, float]]
    """(kind of quota, throttled requests, seconds that their clients were muted for)."""
    quota_counts: int
    """Counts of clients that quotas bind."""
    fetch_sessions: tuple[int, int, int]
    """(fetch sessions, their partitions, sessions that went for others)."""

ParkedProduce = tuple[int, str, int, int, int, list[tuple[str, int]]]
"""(token, transactional_id, producer_id, producer_epoch, transaction_version, partitions)."""

@final
class BodyShape:
    """Where in the bodies of one version of a request lengths, counts and tagged fields are."""

    def __new__(cls, steps: Sequence[tuple[int, int]], is_flexible: bool) -> BodyShape:
        """Store the steps of a body in their order, see `txn.wire.shapes`. Raises ValueError."""

    def plain(self, body: bytes, items_max: int | None = None) -> bytes:
        """Look through a body; return it without tagged fields and with -1 as the length of every
        null; itself if it is so already.

        Raises ValueError: it ends too soon, or has a length or count that cannot be, or more than
        `items_max` items in all its arrays together.
        """

@final
class Durability:
    """The durability service of a broker: tells when the records of a log are on the disk.

    Waiters for the same log share its syncs; different logs are forced side by side.
    """

    def __new__(cls, threads: int) -> Durability:
        """Make a service that starts so many threads at most, each when it is first needed."""
    @property
    def wakeup_fd(self) -> int:
        """Readable while `take` has something that no reactor was told of."""
    def when_durable(self, waits: list[tuple[int, list[tuple[PartitionLog, int]]]]) -> None:
        """Begin waits, each until its logs are on the disk below the offsets beside them; `take`
        tells of it by its number. Returns at once, unless the system has no thread left.
        """
    def take(self) -> list[tuple[int, list[tuple[int, str]]]]:
        """Waits that ended since the last call, by number: the places of the logs that failed, and
        the disk's error.
        """
    def stop(self) -> None:
        """Finish the syncs that are waited for, then the threads."""

@final
class Server:
    """Listening sockets, their reactor threads' work, Produce and Fetch."""

    def __new__(
        cls,
        listeners: Sequence[tuple[str, str, int, TlsContext | None]],
        durability: Durability,
        *,
        reactors: int,
        max_request_bytes: int,
        max_queued_bytes: int,
        max_connections: int,
        max_idle_ms: int,
        sync_acks_all: bool,
        max_fetch_sessions: int = 1_000,
        max_sasl_bytes: int = 524_288,
        sasl_listeners: Sequence[str] = ...,
    ) -> Server:
        """Bind and listen; a negative `max_idle_ms` is no limit, nor is a `max_queued_bytes` that
        is not positive.

        `listeners`: (name, host, port, TLS) of each; requests name them by index. Raises OSError, whose
        `filename` is the name of the listener. Clients of `sasl_listeners` authenticate first, by
        requests of `max_sasl_bytes` at most. `max_connections`: those for which there are file
        descriptors; further ones are closed as they come.
        """
    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The bound addresses of the listeners."""
    @property
    def wakeup_fd(self) -> int:
        """Readable while `take`, `take_joins`, `take_failures`, `take_failed_handshakes`,
        `take_refused` or `take_fatal_requests` has something, or `take_room` is true.
        """
    def run_reactor(self, index: int) -> None:
        """Run reactor `index` on the calling thread until `stop`; holds no interpreter.

        Raises OSError if a bug broke it off: its connections are closed, the server is stopped.
        """
    def add_topic(
        self,
        name: str,
        topic_id: bytes,
        partition_count: int,
        log_of: Callable[[int], PartitionLog | int],
        *,
        is_internal: bool,
    ) -> None:
        """Serve Produce and Fetch of a topic; replaces the topic's partitions if it is known.
        Internal topics refuse Produce.

        `log_of` is called on a reactor when a partition is first needed, and never again once it
        gave a log. A number is Kafka's error code instead, for that request; an exception is
        reported as unraisable and counts as KAFKA_STORAGE_ERROR.
        """
    def remove_topic(self, name: str) -> None: ...
    def sync_before_ack(self, producer_id: int, is_forced: bool) -> None:
        """Answer every transactional Produce of a producer only once it is on the disk, also without
        `sync_acks_all`; or no longer. Earlier answers are not forced by this.
        """
    def authorize_by(self, ask: Callable[[str, str, str, str], bool]) -> None:
        """Authorize every Produce and Fetch by `ask`.

        It is called with principal, host, "read", "write" or "write_by_id", and the name of a topic
        or a transactional id, on any thread. A permission is cached until `forget_verdicts`. An
        exception is reported as unraisable and refuses. Only the first `authorize_by` counts, and
        before it every client is permitted.
        """
    def forget_verdicts(self) -> None:
        """Ask again for the next request of every connection."""
    def advertise(self, node_id: int, addresses: Sequence[tuple[str, int]]) -> None:
        """Have answers name this node, by its address on each listener, to clients of an old leader.

        Only the first call counts."""
    def limit_connections(
        self,
        *,
        max_connections: int,
        max_per_ip: int,
        overrides: Mapping[str, int],
        creation_rate: int,
        listeners: Sequence[tuple[int, int, bool]],
    ) -> None:
        """Replace the limits on connections; before the first call there are none.

        `overrides`: the most connections of single IP addresses. `listeners`: (max_connections,
        creation_rate, whether the broker's own limits do not hold) of each. Surplus connections are
        closed, the least recently used first. Raises ValueError: an address is none.
        """
    def limit_creation_rates(
        self, default: float | None, of_addresses: Mapping[str, float]
    ) -> None:
        """Replace the rates at which IP addresses may connect, per second.

        A connection beyond its rate is closed after a while. `default`: that of all other
        addresses; None: any rate. Raises ValueError: an address is none.
        """
    def publish_quotas(
        self,
        quotas: Sequence[tuple[str, tuple[str | None] | None, tuple[str | None] | None, float]],
        *,
        samples: int,
        length_s: int,
    ) -> None:
        """Replace the quotas of clients; they bind the next request of every connection.

        quotas: (kind, user, client id, limit). kind: Produce or Fetch in bytes a second, or Request in
        per cent of a thread's time. A part is None where there is none, and (None,) for the default.
        A rate is over so many samples of so many seconds. ValueError: no such kind, or no sample.
        """
    def throttle_ms(self, principal: str, host: str, client_id: str, spent_s: float) -> int:
        """Count the time that a request took here; the milliseconds to mute its client for."""
    def mute(self, token: int, duration_ms: int) -> None:
        """Read no further request of a request's connection for some time; its answer is sent."""
    def take(self) -> list[ClientRequest]:
        """The requests that wait for Python, in order of arrival; clears the wakeup. Never blocks."""
    def take_joins(self) -> list[ParkedProduce]:
        """The parked Produce requests, in order of arrival."""
    def let_reactors_decide(
        self,
        api_keys: Sequence[int],
        decide: Callable[[list[ClientRequest], list[ParkedProduce]], bool],
    ) -> None:
        """Let reactors decide on requests of these APIs, and on parked Produce requests, while the
        control lock is free. Otherwise these wait for `take`. Only the first call counts.

        `decide` is called with the results of `take` and `take_joins`; if it returns False or
        raises (reported as unraisable) the senders are disconnected.
        """
    def let_reactors_settle(self, durability: Durability, settle: Callable[[], object]) -> None:
        """Let a reactor's thread call `settle` when waits have ended for `durability.take`.

        It does so while the control lock is free. Otherwise the service's `wakeup_fd` becomes
        readable. An exception is reported as unraisable. Only the first call counts.
        """
    def take_control_lock(self) -> None:
        """Wait until no thread decides; until `release_control_lock` none but the caller does."""
    def release_control_lock(self) -> None:
        """End the decisions of this thread."""
    def has_room(self) -> bool:
        """True if there is memory for a large answer; if not, `take_room` tells when there is."""
    def take_room(self) -> bool:
        """True if there is memory for large answers again since the last call."""
    def take_failures(self) -> list[str]:
        """The bugs that have closed single connections since the last call."""
    def take_failed_handshakes(self) -> list[tuple[int, str, str]]:
        """(listener, client host, reason) of TLS handshakes that failed since the last call; of many
        at once only some.
        """
    def take_refused(self) -> list[tuple[int, str, str]]:
        """(listener, client host, limit) of connections that were closed as they came, since the
        last call; of many at once only some.
        """
    def take_fatal_requests(
        self,
    ) -> list[tuple[str, int | None, int | None, str, int | None, str | None]]:
        """(client host, API key, version, fault, error code, reason) of requests for which reactors
        closed the connections since the last call; of many at once only some. A key or version of
        None stood behind the end of the request. The fault is "malformed" with its reason,
        "unsupported", "unauthenticated", "expired" (the session is), or "unacknowledged" with the
        code and the partition of a Produce with acks=0 that failed.
        """
    def reply(self, token: int, flexible_header: bool, body: bytes) -> None:
        """Answer a request; an answer for a connection that is gone is dropped. The connection's
        next request is read after it.
        """
    def refuse(self, token: int, flexible_header: bool, body: bytes) -> None:
        """Answer a request as its connection's last: no further request is read."""
    def reply_raw(self, token: int, answer: bytes) -> None:
        """Answer a bare token of SASL by another."""
    def attach(self, token: int, attachment: object) -> None:
        """Keep an object beside a request's connection; later requests bring it."""
    def require_authentication(self, token: int, *, is_raw: bool) -> None:
        """Take no request but ApiVersions, SaslHandshake and SaslAuthenticate from a connection, or
        bare tokens, until `authenticated`.
        """
    def authenticated(self, token: int, principal: str, lifetime_ms: int | None) -> None:
        """Serve a request's connection on behalf of a principal. After `lifetime_ms` it is closed
        with its next request, unless that is a SaslHandshake.
        """
    def resume(self, token: int, refused: Sequence[tuple[str, int, int]]) -> None:
        """Continue a parked Produce; refused: (topic, partition, kafka_error_code) of partitions
        that could not join.
        """
    def disconnect(self, token: int) -> None: ...
    def metrics(self) -> ServerMetrics:
        """The counts so far and the requests that wait now. Waits for nobody."""
    def stop(self) -> None:
        """Stop accepting, send written answers, close; reactors return."""

# ---------------------------------------------------------------- rows as columns

Columns = dict[str, object]
"""Rows as Arrow buffers (little endian, offsets are int32, validity bitmaps as Arrow's or None):

rows: int; topic: str; partition: int; next_offset: int (where a following fetch starts);
offsets: int64; timestamps_ms: int64; timestamp_types: int32 (0 create, 1 log append);
key_offsets, key_data, key_validity; value_offsets, value_data, value_validity;
header_list_offsets, header_list_validity, header_key_offsets, header_key_data,
header_value_offsets, header_value_data, header_value_validity (only with include_headers).
Keys and values are left out likewise; a row without headers is null. A chunk holds at least one
row."""

@final
class ClientSecurity:
    """TLS and SASL of every connection of a client. Its repr names protocol and mechanism alone.

    protocol: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL; settings that it has no use for are not read.
    ca_pem: the authorities to trust; None: the system's.
    key_pem: PKCS#8, PKCS#1 or SEC1; None: the key stands beside the certificate.
    check_hostname: False as Kafka's empty ssl.endpoint.identification.algorithm: a certificate of a
        trusted authority may be for another host.
    check_certificate: False: a certificate may come from anybody.
    mechanism: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.
    token: asked at each log-in of a connection, from the thread that called the client; its exception
        is the cause of a KafkaError, and one that is no `Exception` is raised as it is.

    Raises ValueError, one sentence, for settings that cannot be used.
    """

    def __new__(
        cls,
        protocol: str,
        *,
        ca_pem: bytes | None = None,
        certificate_pem: bytes | None = None,
        key_pem: bytes | None = None,
        key_password: str | None = None,
        check_hostname: bool = True,
        check_certificate: bool = True,
        mechanism: str | None = None,
        username: str | None = None,
        password: str | None = None,
        token: Callable[[], str] | None = None,
        extensions: Mapping[str, str] | None = None,
    ) -> ClientSecurity: ...

def read_keystore(
    data: bytes, password: str | None
) -> tuple[bytes | None, bytes | None, bytes | None]:
    """(certificates to trust, certificate with its chain, key) of a PKCS#12 keystore, as PEM.

    Raises ValueError with the way to convert it for Java's own form (JKS) and a wrong password."""

@final
class ClientThread:
    """The thread that does the I/O of a process's native clients, for as long as it is referred to.

    Raises OSError: the system has no thread or no descriptor left.
    """

    def __new__(cls) -> ClientThread: ...

@final
class Message:
    """A record that `NativeConsumer.take` returned, with the methods of confluent-kafka's."""

    def topic(self) -> str:
        """Topic."""
    def partition(self) -> int:
        """Partition."""
    def offset(self) -> int:
        """Offset."""
    def key(self) -> bytes | None:
        """Key."""
    def value(self) -> bytes | None:
        """Value."""
    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """Headers; None without any."""
    def timestamp(self) -> tuple[int, int]:
        """(0: none, 1: of the producer, 2: of the log; milliseconds since 1970)."""
    def leader_epoch(self) -> int | None:
        """Leader epoch of its batch."""
    def error(self) -> None:
        """None: an error is another class's."""
    def latency(self) -> float | None:
        """None: a record that was read has none."""
    def __len__(self) -> int: ...
    def __bool__(self) -> bool: ...

class MessageColumns(TypedDict):
    """Records as Arrow buffers, little endian."""

    rows: int
    topics: list[str]
    topic_indices: bytes
    partitions: bytes
    offsets: bytes
    timestamps_ms: bytes
    key_offsets: bytes
    key_data: bytes
    key_validity: bytes | None
    value_offsets: bytes
    value_data: bytes
    value_validity: bytes | None
    header_list_offsets: bytes
    header_key_offsets: bytes
    header_key_data: bytes
    header_key_validity: bytes | None
    header_value_offsets: bytes
    header_value_data: bytes
    header_value_validity: bytes | None
    firsts: list[tuple[str, int, int]]

@final
class NativeConsumer:
    """A consumer on the native engine. Only `take`, `take_columns`, `answer` and `wait_until_left`
    wait; they run signal handlers meanwhile.

    With `assignors` the group is a classic one, else one of KIP-848.

    Raises ValueError for addresses that are none, and for unknown assignors.
    """

    def __new__(
        cls,
        thread: ClientThread,
        bootstrap_servers: str,
        *,
        client_id: str,
        security: ClientSecurity | None,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        assignor: str | None,
        assignors: list[str] | None,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
        reset: str,
        max_poll_interval_ms: int,
        request_timeout_ms: int,
        retry_backoff_ms: int,
        metadata_max_age_ms: int,
        unknown_topic_max_ms: int,
        api_timeout_ms: int,
        fetch_wait_ms: int,
        fetch_min_bytes: int,
        fetch_max_bytes: int,
        partition_fetch_bytes: int,
        queued_kbytes: int,
        batch_bytes: int,
        reports_ends: bool,
    ) -> NativeConsumer: ...
    def subscribe(self, topics: list[str], pattern: str | None) -> None:
        """Join the group, or change the subscription. `pattern` is RE2, for whole names."""
    def unsubscribe(self) -> None:
        """Leave the group, once the event that revokes its partitions is done."""
    def wait_until_left(self, timeout_ms: int) -> bool:
        """True once the coordinator was told that the member leaves."""
    def take_event(self) -> tuple[int, str, list[tuple[str, int]]] | None:
        """The next change of the group: (number, assign, revoke or lost; partitions)."""
    def event_done(self, number: int) -> None:
        """The program has seen a change."""
    def take_report(self) -> tuple[int, bool, str, str | None, int, bool] | None:
        """The next error: (code, is retriable, message, topic, partition, is without begin)."""
    def take_end(self) -> tuple[str, int, int] | None:
        """The next partition that was read to its end: (topic, partition, offset)."""
    def membership(self) -> tuple[int, str]:
        """(member epoch, member id); (-1, "") without a membership."""
    def assign(self, partitions: list[tuple[str, int, int]]) -> None:
        """Read (topic, partition, offset or librdkafka's name of one), too. Raises ValueError."""
    def unassign(self, places: list[tuple[str, int]]) -> None:
        """Read these partitions no longer."""
    def assignment(self) -> list[tuple[str, int]]:
        """The partitions that are read."""
    def seek(self, topic: str, partition: int, offset: int) -> bool:
        """Go on elsewhere; False: it is not assigned."""
    def pause(self, topic: str, partition: int, is_paused: bool) -> bool:
        """Hand out nothing of it, or go on; False: it is not assigned."""
    def position(self, topic: str, partition: int) -> tuple[int, int] | None:
        """(offset, leader epoch) behind the last record handed out, and behind the markers and
        aborted records after it."""
    def handed_out(self, topic: str, partition: int) -> int | None:
        """The offset behind the last record handed out since it was assigned or sought."""
    def watermarks(self, topic: str, partition: int) -> tuple[int, int] | None:
        """(first offset, end) as the last answer told them."""
    def take_fast(self, timeout: object) -> Message | None:
        """The next record, if one is ready, the fast path is open for this thread, the timeout is a
        number, and neither an event nor a report is due."""
    def open_fast_path(self, awaited: list[tuple[str, int]]) -> None:
        """Open the fast path for this thread, and for no other; unless one of these partitions has
        handed out a record. `take_fast` returns no first record of a partition."""
    def close_fast_path(self) -> None:
        """Close it; `ask_commit` and `close` do so, too."""
    def fast_read_age_s(self) -> float | None:
        """Seconds since `take_fast` gave this thread a record; None: to another one, or to none."""
    def take(self, max: int, timeout_ms: int) -> list[Message]:
        """Records; none after the time-out, and if there is an event or a report."""
    def take_columns(self, max: int, timeout_ms: int) -> MessageColumns | None:
        """`take` as columns."""
    def ask_by_time(self, wanted: list[tuple[str, int, int]]) -> int:
        """Ask for offsets at (topic, partition, ms; -1: the end, -2: the first)."""
    def ask_committed(self, places: list[tuple[str, int]]) -> int:
        """Ask for the committed offsets of the group."""
    def ask_commit(self, offsets: list[tuple[str, int, int, int, str]]) -> int:
        """Commit (topic, partition, offset, leader epoch, metadata)."""
    def ask_topics(self, names: list[str] | None) -> int:
        """Ask for topics; None: all."""
    def answer(
        self, number: int, timeout_ms: int, drops: bool
    ) -> (
        tuple[
            tuple[int, bool, str] | None,
            list[tuple[str, int, int, int, int, str]],
            list[tuple[int, str, int]],
            list[tuple[str, int, list[tuple[int, int, int]]]],
        ]
        | None
    ):
        """The answer to a question: its error (code, is retriable, message); (topic, partition,
        error code, offset, leader epoch, metadata) of each partition; brokers (id, host, port);
        topics (name, error code, partitions (error code, partition, leader)). None after the
        time-out, which drops the question if `drops`."""
    def has_connected(self) -> bool:
        """True once a node was reached."""
    def connect_errors(self) -> list[tuple[str, int, bool, bool, str]]:
        """(address, code, is retriable, is other protocol, message) of addresses that cannot be
        reached. The third mark is of a listener of another `security.protocol`.
        """
    def last_error(self) -> str | None:
        """The error that keeps it waiting."""
    def close(self) -> None:
        """Close the connections."""

@final
class NativeProducer:
    """A producer on the native engine. Only `wait` waits; it runs signal handlers meanwhile.

    Raises ValueError for addresses that are none and a codec that does not exist.
    """

    def __new__(
        cls,
        thread: ClientThread,
        bootstrap_servers: str,
        *,
        client_id: str,
        security: ClientSecurity | None,
        transactional_id: str | None,
        transaction_timeout_ms: int,
        is_two_phase: bool,
        linger_ms: int,
        batch_size: int,
        buffer_memory: int,
        max_request_size: int,
        delivery_timeout_ms: int,
        request_timeout_ms: int,
        max_in_flight: int,
        compression: str,
        retry_backoff_ms: int,
        metadata_max_age_ms: int,
        unknown_topic_max_ms: int,
        makes_topics: bool,
    ) -> NativeProducer: ...
    def init(self) -> None:
        """Take an identity; await `settled`."""
    def begin(self) -> bool:
        """Begin a transaction; False: the status does not allow it."""
    def append(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        headers: object,
        partition: int | None,
        timestamp: int | None,
        /,
    ) -> bool | None:
        """Add a record and return True. Return False if nothing was added: `send` adds the record,
        or gives the reason. Return None for the same, and if reports should be collected first, as
        once in 256 calls. Nothing is added before `hold`, unless there is a transactional id."""
    def hold(self) -> None:
        """Let `append` add records: the caller keeps this producer until they are stored."""
    def release(self) -> bool:
        """End `hold` if every record is stored or given up; return True if `append` adds none."""
    def is_held(self) -> bool:
        """Return True if `append` adds records."""
    def send(
        self,
        topic: str,
        value: str | bytes | None,
        key: str | bytes | None,
        headers: list[tuple[str, str | bytes | None]] | None,
        partition: int | None,
        timestamp: int | None,
        delivery: int | None = None,
    ) -> str | None:
        """Take a record and return None; or return why not: full, too-large, not-open, failed,
        fatal. Raises TypeError for an argument of another type. `delivery` is the number by which
        `reports` tells how it ended, in place of `take_failures`."""
    def send_rows(
        self,
        topic: str,
        first: int,
        rows: int,
        key: tuple[bytes, bytes, bytes | None] | None,
        value: tuple[bytes, bytes, bytes | None],
        headers: tuple[bytes, bytes | None, bytes, bytes, bytes, bytes, bytes | None] | None,
        partition: bytes | None,
        timestamp_ms: bytes | None,
    ) -> tuple[int, str | None]:
        """Take the rows from `first` on; the buffers are those of `Writer.write`. Return the first
        that was not taken, and why not, as `send`; the number of rows and None if all were. Raises
        ValueError for buffers that do not fit `rows`."""
    def send_offsets(
        self,
        group: str,
        generation: int,
        member_id: str,
        instance_id: str | None,
        offsets: list[tuple[str, int, int, int, str | None]],
    ) -> bool:
        """Send (topic, partition, next offset, leader epoch or -1, metadata) with the transaction;
        await `offsets`. False: none is open."""
    def prepare(self) -> tuple[int, int] | None:
        """Prepare the open transaction, whose records and offsets are stored (KIP-939). Return its
        producer id and epoch, (-1, -1) if it is empty; None: the status does not allow it."""
    def kept(self) -> tuple[int, int] | None:
        """Producer id and epoch of the transaction that was kept for this producer, until it ends."""
    def end(self, commit: bool) -> bool:
        """Commit or abort; await `settled`. False: the status does not allow it."""
    def has_ended(self, commit: bool) -> bool:
        """True if the coordinator has accepted this end of the last transaction, even if it
        refused a new epoch afterwards."""
    def flush(self) -> None:
        """Send what lingers; await `stored`."""
    def wait(self, until: str, timeout_ms: int) -> bool:
        """Return True once it is so, False after the time-out: settled (the status is not
        `working`), offsets (none are on their way), stored (no record is pending), reports (there are some),
        room."""
    def status(self) -> tuple[str, int, str]:
        """(new, working, ready, open, prepared, failed or fatal; its error's code and message)."""
    def pending(self) -> int:
        """Number of records that are neither stored nor given up."""
    def take_failures(self) -> list[tuple[str, int, int, int, int, bool, str]]:
        """Batches that were given up: (topic, partition, records, bytes of the largest, code, is
        retriable, message). Each is told once."""
    def reports(
        self,
    ) -> tuple[int, list[tuple[int, str, int, int, int, int, tuple[int, bool, str] | None]]]:
        """The ends of records that were sent with a number, oldest first, until they are forgotten.

        Each is (the record's number, topic, partition, offset, timestamp in ms, bytes, error). The
        error is None if the record is stored, else (code, is retriable, message), with code 0 for
        one that was dropped by an abort. The first value is the argument of `forget_reports`.
        """
    def forget_reports(self, end: int) -> None:
        """Forget the reports that `reports` returned with this number."""
    def has_connected(self) -> bool:
        """True once a node was reached."""
    def connect_errors(self) -> list[tuple[str, int, bool, bool, str]]:
        """(address, code, is retriable, is other protocol, message) of addresses that cannot be
        reached. The third mark is of a listener of another `security.protocol`.
        """
    def last_error(self) -> str | None:
        """The error that keeps it waiting."""
    def close(self) -> None:
        """Give up everything, and close the connections."""

@final
class KafkaClient:
    """A small blocking client for rows as columns, for any Kafka >= 3.0; one instance per thread.

    Every call finds the right node (leader, transaction or group coordinator), retries retriable
    errors until `timeout_ms`, then raises KafkaError. A log-in or a certificate that fails is told
    at once. A node has 30 s for its whole answer. One with records has to begin by then, and has
    `timeout_ms` for the rest. Answers without records have 100 MiB at most.
    """

    def __new__(
        cls,
        bootstrap_servers: str,
        *,
        client_id: str = "txn",
        timeout_ms: int = 60000,
        security: ClientSecurity | None = None,
    ) -> KafkaClient: ...
    @property
    def transaction_version(self) -> int:
        """2 when the cluster has finalized transaction.version >= 2, else 1."""
    def topics(self) -> list[str]:
        """All but internal ones, sorted."""
    def describe_topics(
        self, topics: Sequence[str], *, is_patient: bool = False
    ) -> list[tuple[int, bytes | None] | None]:
        """(partition count, 16 bytes of id or None) of each; None for a topic that is not there.

        `is_patient`: ask for some seconds first, for a node that has just started may not know
        a topic yet."""
    def partition_count(self, topic: str) -> int:
        """Raises KafkaError 3 for an unknown topic."""
    def create_topic(self, topic: str, partitions: int, configs: dict[str, str]) -> bool:
        """True if made, False if it was there. Replication is the cluster's default."""
    def list_offsets(
        self,
        topic: str,
        partitions: Sequence[int],
        timestamp_ms: int,
        *,
        read_committed: bool = True,
    ) -> list[int]:
        """-1 latest, -2 earliest, or the first offset at or after the time (-1 if none)."""
    def fetch(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int,
        *,
        read_committed: bool = True,
        max_bytes: int = 4 << 20,
        max_batch_bytes: int = 256 << 20,
        include_keys: bool = True,
        include_values: bool = True,
        include_headers: bool = False,
    ) -> Fetch:
        """Iterate the records of [start, end). `max_batch_bytes`: of one compressed batch, opened.

        An answer has `max_bytes`, or one batch that is larger. Over a link too slow to bring it
        within the client's `timeout_ms`, it fails, as by librdkafka's socket.timeout.ms: ask for
        less, or give more time.

        Raises KafkaError: 1 when `start` is no longer there, 2 when a batch cannot be read."""
    def init_producer_id(
        self,
        transactional_id: str,
        timeout_ms: int,
        producer_id: int = -1,
        producer_epoch: int = -1,
        *,
        is_two_phase: bool = False,
    ) -> tuple[int, int]: ...
    def end_txn(
        self, transactional_id: str, producer_id: int, producer_epoch: int, commit: bool
    ) -> tuple[int, int]:
        """Return the (producer_id, producer_epoch) to use next. Safe to repeat: the same end gets
        the same answer.

        Under transaction version 1 that is the same identity. Renew it by init_producer_id before
        another writer uses it: sequences start at 0 with every writer, so its batches would be
        taken for duplicates."""
    def describe_transactions(
        self, transactional_ids: Sequence[str]
    ) -> list[tuple[str, int, str, int, int, int, int]]:
        """(transactional_id, error_code, state, producer_id, producer_epoch, start_time_ms,
        timeout_ms).
        """
    def list_transactions(self, states: Sequence[str], prefix: str) -> list[tuple[str, int, str]]:
        """(transactional_id, producer_id, state) from every node."""
    def add_offsets(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        group: str,
        offsets: Sequence[tuple[str, int, int]],
    ) -> None:
        """Commit (topic, partition, offset) for a simple group inside the transaction."""
    def writer(
        self,
        transactional_id: str | None,
        producer_id: int,
        producer_epoch: int,
        *,
        batch_bytes: int = 1 << 20,
        compression: str = "none",
        acks: int = -1,
        metadata_max_age_ms: int = 300000,
    ) -> Writer:
        """Write columns in the open transaction of this producer identity (None: idempotent without
        one).

        `metadata_max_age_ms`: a topic's partitions are counted anew, for the rows that choose none,
        if this client's knowledge of them is older.

        One writer per identity and transaction: a second one in this client is refused when it
        sends."""
    def any_node(self) -> tuple[str, int]:
        """(host, port) of a node that answers. Tries each address once."""
    def version(self, node: tuple[str, int], api_key: int, versions: tuple[int, int]) -> int:
        """The highest version of an API that the node offers, between two inclusive versions.

        Tries once. Raises KafkaError: 35 without a common version, 13 or 7 if the node does not
        answer."""
    def send(self, node: tuple[str, int], api_key: int, version: int, body: bytes) -> bytes:
        """Send a request body and return the answer's body, both without headers.

        Tries once and does not read the answer, so error codes in it are the caller's to handle.
        Raises KafkaError: 13 for a lost connection, 7 for a late answer."""
    def close(self) -> None: ...

@final
class Fetch:
    """An iterator of `Columns`; the next request is on its way while the last answer is decoded."""

    def __iter__(self) -> Fetch: ...
    def __next__(self) -> Columns: ...

@final
class Writer:
    """Encodes Arrow columns into record batches and produces them."""

    def write(
        self,
        topic: str,
        rows: int,
        key: tuple[bytes, bytes, bytes | None] | None,
        value: tuple[bytes, bytes, bytes | None],
        headers: tuple[bytes, bytes | None, bytes, bytes, bytes, bytes, bytes | None] | None = None,
        partition: bytes | None = None,
        timestamp_ms: bytes | None = None,
    ) -> None:
        """Add rows. key, value: (int32 offsets, data, validity). partition: int32 per row; None or
        -1: murmur2 of the key as
        Java's producer, rows without key in turn (16 KiB each). timestamp_ms: int64 per row; None:
        now. headers: list offsets
        and validity, key offsets and data, value offsets, data and validity. Sends full batches.
        Raises ValueError for buffers
        that do not fit `rows`, KafkaError; after one, and an unknown partition apart, the writer
        refuses everything."""
    def flush(self) -> int:
        """Send buffered records and wait for every acknowledgement; return the records written so
        far. Raises KafkaError.
        """
