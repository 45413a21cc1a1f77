"""Compaction beside the requests: threads that clean the dirtiest log, then look for the next.

`txn.partition.compaction` decides which part may be cleaned and which log comes first.
`_core.Cleaner` does the work, without the interpreter and at most as fast as
`log.cleaner.io.max.bytes.per.second`. Where each cleaning ended is kept in
`cleaner-offset-checkpoint`; without it the whole log counts as dirty.

A log whose batches are damaged is left alone until the next start. Any other failure is tried
again after `log.cleaner.backoff.ms`. Batches with a right checksum that cannot be read stay as
they are; the cleaning that meets them first says so (`log.unreadable_batches_kept`).
"""

import threading
import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from txn import _core
from txn.broker.node import Node
from txn.config import split_list, topic_setting
from txn.logs import log
from txn.metadata.image import Topic
from txn.partition.compaction import (
    Lag,
    LogToClean,
    SealedSegment,
    cleanable,
    dirtiest,
    first_dirty_offset,
)
from txn.storage.base import PartitionLog
from txn.storage.native import NativeStorage
from txn.storage.native_log import NativeLog

Key = tuple[uuid.UUID, int]
"""A partition, by its topic's id: a topic made anew has nothing clean."""


class CompactedLog(NamedTuple):
    """A partition of a topic whose cleanup.policy names compact."""

    topic: Topic
    store: PartitionLog

    @property
    def key(self) -> Key:
        """A name that is unique."""
        return self.topic.topic_id, self.store.index


class LogCleaner:
    """The cleaner threads of one broker."""

    def __init__(self, node: Node, storage: NativeStorage) -> None:
        self._node = node
        self._storage = storage
        self._cleaned_ends = storage.past.cleaned_ends
        self._lock = threading.Lock()
        self._in_work: set[Key] = set()
        self._damaged: set[Key] = set()
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._limits: tuple[int, float, float] | None = None
        self._cleaners: list[_core.Cleaner] = []

    def start(self) -> None:
        """Begin to look for work, unless `log.cleaner.enable` is false."""
        if self._node.settings["log.cleaner.enable"]:
            self._add_thread()

    def stop(self) -> None:
        """End the work under way; returns when the threads have ended."""
        self._stopping.set()
        with self._lock:
            cleaners = list(self._cleaners)
        for cleaner in cleaners:
            cleaner.stop()
        for thread in self._threads:
            thread.join()

    def clean_dirtiest(self) -> bool:
        """Clean the log in most need of it; return False if there was none, or it failed."""
        with self._lock:
            chosen = dirtiest(self._candidates())
            if chosen is None or self._stopping.is_set():
                return False
            key = chosen.log.key
            self._in_work.add(key)
            cleaner = self._cleaner()
        try:
            return self._clean(cleaner, chosen)
        except _core.CorruptLogError as error:
            message, path, position = error.args
            topic, store = chosen.log
            self._storage.upkeep.log_damage(topic.name, store.index, message, path, position)
            self._damaged.add(key)
        except (_core.LogRefusedError, OSError, ValueError) as error:
            self._note_failure(chosen.log, error)
        finally:
            with self._lock:
                self._in_work.discard(key)
        return False

    # ------------------------------------------------------------ one cleaning

    def _clean(self, cleaner: _core.Cleaner, chosen: LogToClean[CompactedLog]) -> bool:
        topic, store = chosen.log
        assert isinstance(store, NativeLog), f"{topic.name} is not on disk"
        done = cleaner.clean(
            store.log,
            first_dirty_offset=chosen.cleanable.first_dirty_offset,
            end=chosen.cleanable.end,
            delete_retention_ms=self._setting("delete.retention.ms", topic),
            now_ms=self._node.host.now_ms(),
        )
        if done is None:
            return False
        end, bytes_before, bytes_after, keys, unreadable = done
        self._cleaned_ends.note(topic.name, store.index, store.log, end)
        log.info(
            "log.compacted",
            topic=topic.name,
            partition=store.index,
            end=end,
            bytes_before=bytes_before,
            bytes_after=bytes_after,
            keys=keys,
        )
        if unreadable is not None:
            batches, path, position, offset, reason = unreadable
            log.warning(
                "log.unreadable_batches_kept",
                topic=topic.name,
                partition=store.index,
                batches=batches,
                path=path,
                position=position,
                offset=offset,
                reason=reason,
            )
        return True

    def _candidates(self) -> Iterator[LogToClean[CompactedLog]]:
        """Cleanable parts of the logs that no cleaner works on."""
        now_ms = self._node.host.now_ms()
        for compacted in self.compacted_logs():
            if compacted.key in self._in_work or compacted.key in self._damaged:
                continue
            topic, store = compacted
            assert isinstance(store, NativeLog), f"{topic.name} is not on disk"
            start, end = store.log_start_offset, store.log_end_offset
            if start == end:
                continue
            try:
                segments = [SealedSegment(*segment) for segment in store.log.sealed_segments()]
            except _core.LogRefusedError:
                continue  # it was deleted meanwhile
            except (_core.CorruptLogError, OSError) as error:
                self._note_failure(compacted, error)
                continue
            lag = Lag(
                min_ms=self._setting("min.compaction.lag.ms", topic),
                max_ms=self._setting("max.compaction.lag.ms", topic),
            )
            candidates = cleanable(
                segments,
                first_dirty_offset=first_dirty_offset(
                    self._cleaned_ends.of(topic.name, store.index), start, end
                ),
                last_stable_offset=store.last_stable_offset,
                lag=lag,
                now_ms=now_ms,
            )
            yield LogToClean(
                compacted, candidates, self._setting("min.cleanable.dirty.ratio", topic)
            )

    def compacted_logs(self) -> Iterator[CompactedLog]:
        """Every partition of a compacted topic; meanwhile some may be made and deleted."""
        for name, partitions in self._node.partitions.copy().items():
            topic = self._node.image.topics.get(name)
            if topic is None or "compact" not in split_list(self._setting("cleanup.policy", topic)):
                continue
            for store in partitions.opened():
                yield CompactedLog(topic, store)

    def _setting(self, name: str, topic: Topic) -> Any:
        return topic_setting(name, topic.settings, self._node.settings)

    def _note_failure(self, compacted: CompactedLog, error: Exception) -> None:
        topic, store = compacted
        log.error("log.not_compacted", topic=topic.name, partition=store.index, reason=str(error))

    # ------------------------------------------------------------ threads

    def _add_thread(self) -> None:
        index = len(self._threads)
        thread = threading.Thread(
            target=self._run, args=(index,), name=f"txn-cleaner-{index}", daemon=True
        )
        self._threads.append(thread)
        thread.start()

    def _run(self, index: int) -> None:
        settings = self._node.settings
        while not self._stopping.wait(max(settings["log.cleaner.backoff.ms"], 1) / 1000):
            if index == 0 and len(self._threads) < settings["log.cleaner.threads"]:
                self._add_thread()
            try:
                self._cleaned_ends.write()  # without topics that are gone
                while index < settings["log.cleaner.threads"] and self.clean_dirtiest():
                    pass
            except Exception:
                log.exception("broker.compaction_failed")

    def _cleaner(self) -> _core.Cleaner:
        """The cleaner with the settings of now; the memory is shared out over the threads."""
        settings = self._node.settings
        limits = (
            settings["log.cleaner.dedupe.buffer.size"] // max(settings["log.cleaner.threads"], 1),
            settings["log.cleaner.io.buffer.load.factor"],
            settings["log.cleaner.io.max.bytes.per.second"],
        )
        if limits != self._limits:
            map_bytes, load_factor, bytes_per_second = self._limits = limits
            self._cleaners.append(
                _core.Cleaner(
                    map_bytes=map_bytes, load_factor=load_factor, bytes_per_second=bytes_per_second
                )
            )
        return self._cleaners[-1]
