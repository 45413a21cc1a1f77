"""Proof in `__transaction_state` that files have lost unsynced bytes, though no power failed.

A process that is killed loses no byte that it had written. So where a log ends at or below an
offset that a record names, the storage has lost its cache. A volume was detached, for example, or a
file system failed and was mounted again. A start then goes by the rules of `unsynced`, as after a
power failure.

    last_offsets        a Prepare to commit names an offset that its log does not have
    unsynced_markers    a carried marker is gone; the records before it are there

A marker is written once the records that its Prepare names are on the disk. A log that ends at or
below those, too, has lost more than a cache: that is damage, and proves nothing here. A marker
whose Prepare is unknown proves nothing either. The cleaner may have removed it: then the start
refuses the partition if it holds the transaction open (`open_transactions`).

Pure.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from txn.coordinator.transaction.open_transactions import (
    OpenTransaction,
    TopicIdOf,
    owners_of,
    unexplained,
)
from txn.coordinator.transaction.records import TxnRecord
from txn.coordinator.transaction.states import LastOffset, Txn, TxnState, UnsyncedMarker

EndOf = Callable[[bytes, int], int | None]
"""Gives a partition's log end, from its topic's id and its number. None proves nothing: the topic
was deleted, the log cannot be read, or its loss was accepted.
"""

NamedOffsets = Mapping[tuple[bytes, int], Collection[int]]
"""The offsets that the Prepares of an id have named, by topic id and partition."""


class LostOffset(NamedTuple):
    """An offset that a record names, and that is not in its log any more."""

    transactional_id: str
    topic_id: bytes
    partition: int
    offset: int
    log_end_offset: int


def find_lost_offset(
    unfinished: Sequence[tuple[str, Txn]],
    everybody: Callable[[], Iterable[tuple[str, Txn]]],
    held: Iterable[OpenTransaction],
    *,
    named_by: Callable[[str], NamedOffsets],
    end_of: EndOf,
    topic_id_of: TopicIdOf,
) -> LostOffset | None:
    """Find an offset that only a lost cache can have taken.

    Args:
        unfinished: The ids that are not at rest, at least.
        everybody: Gives all ids, at a cost.
        held: The open transactions of partitions.
        named_by: Gives the offsets that an id's stored Prepares name, at a cost.
        end_of: Gives the log ends.
        topic_id_of: Gives the ids of topics.
    """
    is_explained = not unexplained(held, owners_of(unfinished), topic_id_of)
    found = _lost_offsets(unfinished, everybody, is_explained, named_by, end_of)
    return next(found, None)


def named_offsets(records: Iterable[TxnRecord]) -> NamedOffsets:
    """Collect the offsets that records of one id name."""
    named: dict[tuple[bytes, int], list[int]] = {}
    for _, txn in records:
        if isinstance(txn, Txn):  # one at rest is encoded, and names nothing
            for each in txn.last_offsets:
                named.setdefault((each.topic_id, each.partition), []).append(each.offset)
    return named


def _lost_offsets(
    unfinished: Sequence[tuple[str, Txn]],
    everybody: Callable[[], Iterable[tuple[str, Txn]]],
    is_explained: bool,
    named_by: Callable[[str], NamedOffsets],
    end_of: EndOf,
) -> Iterator[LostOffset]:
    for transactional_id, txn in unfinished:
        if txn.state is TxnState.PREPARE_COMMIT:
            yield from _lost_of(transactional_id, txn.last_offsets, end_of)
    # An id whose marker is gone has a later transaction. Or it is at rest, and nothing explains the
    # transaction that the marker has left open.
    for transactional_id, txn in unfinished if is_explained else everybody():
        lost = list(_lost_of(transactional_id, txn.unsynced_markers, end_of))
        named = named_by(transactional_id) if lost else {}
        yield from (each for each in lost if _has_its_records(each, named))


def _lost_of(
    transactional_id: str, named: Iterable[LastOffset | UnsyncedMarker], end_of: EndOf
) -> Iterator[LostOffset]:
    for each in named:
        end = end_of(each.topic_id, each.partition)
        if end is not None and end <= each.offset:
            yield LostOffset(transactional_id, each.topic_id, each.partition, each.offset, end)


def _has_its_records(marker: LostOffset, named: NamedOffsets) -> bool:
    """Return True if the records before a lost marker are there, as its Prepare has named them."""
    offsets = named.get((marker.topic_id, marker.partition), ())
    last = max((each for each in offsets if each < marker.offset), default=None)
    return last is not None and last < marker.log_end_offset
