"""The upkeep of open logs: syncs, retention and checkpoints.

A log start is on the disk before the segments below it are removed, and log starts are written
before recovery points. So a checkpoint never proves a loss that did not happen.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from txn import _core
from txn.errors import StorageError
from txn.identifiers import TopicPartition
from txn.logs import log
from txn.storage.checkpoints import LOG_STARTS, RECOVERY_POINTS
from txn.storage.log_offsets import METADATA, LogStart
from txn.storage.past import Past
from txn.storage.workers import map_in_threads

SYNCING_THREADS = 16
"""Number of logs synced or closed at once: each waits for the disk."""


class LogUpkeep:
    """The periodic work on all open logs of a data directory, and the writing of checkpoints."""

    def __init__(self, root: Path, past: Past, durability: _core.Durability) -> None:
        """`past` has the open logs; `tick` syncs them with `durability`."""
        self._root = root
        self._past = past
        self._durability = durability
        self._is_checkpoint_refused = False

    def tick(self) -> None:
        """Sync sealed segments and bytes that have waited for `flush.ms`, and remove files whose
        delay is over. Report damage that readers met, and logs that a disk keeps from taking
        batches. Note logs that were written for the first time, and how much of the metadata log
        was synced. Close unused files.
        """
        logs = list(self._past.recovery_points.logs().values())
        damaged, troubles = _core.tick(logs, self._durability)
        for directory, trouble in troubles:
            if trouble is None:
                log.warning("log.takes_batches_again", directory=directory)
            else:
                log.error("log.refuses_batches", directory=directory, reason=trouble)
        for what, path, position in damaged:
            topic, _, index = Path(path).parent.name.rpartition("-")
            self.log_damage(topic, int(index), what, path, position)
        if self._past.recovery_points.are_behind():
            self._note_new_logs()
        _core.close_idle_files()

    def log_damage(self, topic: str, index: int, what: str, path: str, position: int) -> None:
        """Log damage that a reader found while the broker serves, as a start logs it."""
        reason = f"{what}. {self._past.advice_on(topic, index)}"
        log.error(
            "log.damaged", topic=topic, partition=index, path=path, position=position, reason=reason
        )

    def release(self) -> None:
        """Release the durability service; `tick` is called no more."""
        del self._durability

    def _note_new_logs(self) -> None:
        try:
            self.write_log_starts()  # first: `are_behind` asks the others, until they are written
            self.write_recovery_points()
        except OSError as error:
            if not self._is_checkpoint_refused:
                log.error("checkpoint.not_written", path=RECOVERY_POINTS, reason=str(error))
            self._is_checkpoint_refused = True
        else:
            self._is_checkpoint_refused = False

    def retain(self, now_ms: int) -> None:
        """Remove the segments that retention no longer keeps; a refused log keeps all of them.

        The new log starts of all logs are noted in one write, before any segment goes.
        """
        expired: dict[TopicPartition, LogStart] = {}
        for place, partition in self._past.recovery_points.logs().items():
            if place in self._past.refusals:
                continue  # its records may be needed to repair it
            with self._retaining(place):
                if found := partition.find_expired(now_ms):
                    expired[place] = LogStart(partition, *found)
        try:
            self._past.log_starts.note(expired)
        except OSError as error:
            log.error("checkpoint.not_written", path=LOG_STARTS, reason=str(error))
            return
        for place, start in expired.items():
            with self._retaining(place):
                self._remove_expired(place, start)

    def _remove_expired(self, place: TopicPartition, start: LogStart) -> None:
        def note(offset: int) -> None:
            self._past.log_starts.note({place: start._replace(offset=offset)})

        partition = start.log
        if removed := partition.remove_expired((start.offset, start.truncations), note):
            log.info(
                "log.segments_removed",
                topic=place[0],
                partition=place[1],
                segments=removed,
                log_start_offset=partition.log_start_offset,
            )

    @contextmanager
    def _retaining(self, place: TopicPartition) -> Iterator[None]:
        try:
            yield
        except _core.LogRefusedError:
            return  # it was closed or deleted meanwhile
        except (_core.CorruptLogError, OSError) as error:
            reason = str(error.args[0])
            log.error("log.retention_failed", topic=place[0], partition=place[1], reason=reason)

    def write_recovery_points(self) -> None:
        """Write the facts that the next start may believe. Raises OSError."""
        self._past.recovery_points.write()

    def write_log_starts(self) -> None:
        """Write the starts that were set for logs. Raises OSError."""
        self._past.log_starts.write()

    def write_checkpoints(self) -> None:
        """Write the checkpoints for the logs as a power failure left them; blocks.

        Old entries may lie above the log ends, and would look like a loss after the next kill.
        Raises StorageError.
        """
        try:
            self.write_log_starts()
            self.write_recovery_points()
        except OSError as error:
            raise StorageError(f"cannot write the checkpoints in {self._root}: {error}") from error

    def sync_all_and_write_checkpoints(self) -> None:
        """Sync all logs, and write checkpoints that cover them; blocks.

        For a broker that did not write them all under its own promise. Kafka's cleaner leaves gaps
        between segments. After a power failure, only the recovery point and its last cleaning tell
        them from losses. Its retention notes no log start before it removes segments; from here on
        an entry proves where a log begins. Raises StorageError.
        """
        logs = self._past.recovery_points.logs()
        if not logs.keys() - {METADATA}:
            return

        def sync(opened: _core.PartitionLog) -> None:
            with suppress(_core.LogRefusedError, OSError):  # `tick` reports it
                opened.sync()

        map_in_threads(SYNCING_THREADS, sync, list(logs.values()))
        self.write_checkpoints()
