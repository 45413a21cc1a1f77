"""Checks, before a start decides anything, whether the storage has lost its cache.

A start after a kill assumes that all written bytes are there. If a record disproves that, the start
is abandoned, and everything is loaded again as after a power failure. The rules of proof are in
`coordinator.transaction.lost_cache`.
"""

import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence

from txn.broker.host import Host
from txn.coordinator.transaction.lost_cache import NamedOffsets, find_lost_offset, named_offsets
from txn.coordinator.transaction.open_transactions import OpenTransaction
from txn.coordinator.transaction.records import TxnRecord, decode_record
from txn.coordinator.transaction.states import Txn
from txn.errors import CorruptLogError, StorageError
from txn.storage.base import PartitionLog


class LostCacheError(Exception):
    """The files prove that the storage lost its cache. Nothing was decided or served yet.

    Attributes:
        proof: The loss, in words.
    """

    def __init__(self, proof: str) -> None:
        super().__init__(proof)
        self.proof = proof


def require_cache(
    host: Host,
    unfinished: Sequence[tuple[str, Txn]],
    everybody: Callable[[], Iterable[tuple[str, Txn]]],
    held: Iterable[OpenTransaction],
    log_of: Callable[[str], PartitionLog],
) -> None:
    """Raise LostCacheError if a record names an offset that only a lost cache can have taken.

    Args:
        host: The broker.
        unfinished: The ids that are not at rest, at least.
        everybody: Gives all ids, at a cost.
        held: The open transactions of partitions.
        log_of: Gives the partition of `__transaction_state` that has an id.
    """

    def end_of(topic_id: bytes, partition: int) -> int | None:
        topic = host.topic_name(uuid.UUID(bytes=topic_id))
        if topic is None or host.accepts_loss(topic, partition):
            return None
        try:
            store = host.partition(topic, partition)
        except StorageError:  # it is refused, or a disk fails: the loss may be another one
            return None
        return None if store is None else store.log_end_offset

    def topic_id_of(topic: str) -> bytes | None:
        topic_id = host.topic_id(topic)
        return None if topic_id is None else topic_id.bytes

    def named_by(transactional_id: str) -> NamedOffsets:
        try:
            return named_offsets(_records_of(log_of(transactional_id), transactional_id))
        except (CorruptLogError, StorageError, OSError, ValueError):
            return {}

    lost = find_lost_offset(
        unfinished, everybody, held, named_by=named_by, end_of=end_of, topic_id_of=topic_id_of
    )
    if lost is not None:
        topic = host.topic_name(uuid.UUID(bytes=lost.topic_id))
        raise LostCacheError(
            f"transactional id {lost.transactional_id!r} names offset {lost.offset} of "
            f"{topic}-{lost.partition}, whose log ends at {lost.log_end_offset}"
        )


def _records_of(log: PartitionLog, transactional_id: str) -> Iterator[TxnRecord]:
    for batch in log.batches():
        for stored in batch.records:
            record = decode_record(stored.key or b"", stored.value)
            if record is not None and record[0] == transactional_id:
                yield record
