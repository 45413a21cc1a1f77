"""Logs that are gone, by the records of the coordinators.

A partition that was never written has no directory, so one whose directory vanishes looks the same.
The checkpoints name each log within a second of its first record. Two kinds of records know of
logs, too:

    a Prepare to commit that was completed    its offsets were on the disk: a proof
    a committed offset above 0                a client's claim: it is reported

Topics that were deleted are known by no name, and prove nothing. Neither does a Prepare that is not
completed yet: see `coordinator.transaction.lost_cache`.

Pure.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from txn.coordinator.group.offsets import StoredOffset
from txn.coordinator.transaction.records import TxnRecord, is_completed_commit
from txn.coordinator.transaction.states import LastOffset, Txn, TxnState
from txn.identifiers import TopicPartition

CLAIMED_LOG: Final = "it has no log"
"""Words of a finding that rests on a client's claim: perhaps there never was a log."""


class KnownEnd(NamedTuple):
    """An end of a partition's log, by a record of a coordinator.

    `finding` says for a partition without a log what the record makes of that: it is a proof or a
    client's claim.
    """

    place: TopicPartition
    end: int
    finding: str


class CompletedCommits:
    """The offsets that completed commits have named, while `__transaction_state` is read."""

    def __init__(self) -> None:
        self._prepared: dict[str, tuple[LastOffset, ...]] = {}
        self._named: dict[tuple[bytes, int], tuple[int, str]] = {}

    def read(self, record: TxnRecord) -> None:
        """Read the next record of a partition."""
        transactional_id, txn = record
        if isinstance(txn, Txn) and txn.state is TxnState.PREPARE_COMMIT:
            self._prepared[transactional_id] = txn.last_offsets
            return
        prepared = self._prepared.pop(transactional_id, ())
        if prepared and is_completed_commit(txn):
            for each in prepared:
                place = each.topic_id, each.partition
                if each.offset > self._named.get(place, (-1, ""))[0]:
                    self._named[place] = each.offset, transactional_id

    def known_ends(self, name_of: Callable[[UUID], str | None]) -> Iterator[KnownEnd]:
        """The ends of logs; `name_of` gives a topic's name by its id, None if it was deleted."""
        for (topic_id, partition), (offset, transactional_id) in self._named.items():
            topic = name_of(UUID(bytes=topic_id))
            if topic is not None:
                finding = (
                    f"its log is gone, but transactional id {transactional_id!r} "
                    f"has committed offset {offset} of it"
                )
                yield KnownEnd((topic, partition), offset + 1, finding)


def ends_in_offsets(
    groups: Iterable[tuple[str, Mapping[TopicPartition, StoredOffset]]],
    id_of: Callable[[str], UUID | None],
) -> Iterator[KnownEnd]:
    """The ends of logs by the committed offsets of groups; the largest of each partition.

    `id_of` gives the id of a topic by its name, None if there is none.
    """
    found: dict[TopicPartition, KnownEnd] = {}
    for group_id, offsets in groups:
        for place, stored in offsets.items():
            offset, topic_id = stored.value.offset, id_of(place[0])
            is_of_topic = topic_id is not None and stored.value.topic_id in (None, topic_id)
            known = found.get(place)
            if offset > 0 and is_of_topic and (known is None or known.end < offset):
                finding = (
                    f"{CLAIMED_LOG}, but group {group_id!r} has committed offset {offset} of it"
                )
                found[place] = KnownEnd(place, offset, finding)
    yield from found.values()
