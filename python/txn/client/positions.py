"""The positions of a `txn.Consumer`: the offsets that a block commits, and where a rewind goes.

Invariant: for each partition this knows the offset of the next record that the program has not
seen (its position), and the offset at which another reader would begin. Where the two differ,
records were handed out that nothing has committed. Three rules follow:

1. *Everything handed out counts.* The offsets to commit are one past the last record that `poll` or
   `consume` returned to the program, in a block or before it. After a `seek` the position is its
   target. A partition that the program unassigns keeps its position until the next commit.
2. *Nothing handed out may be lost.* When a rebalance revokes a partition with uncommitted records,
   these records belong to its next owner, who reads them again. The block that would commit their
   output is aborted. So is a block after a signal interrupted `poll` or `consume`, because records
   may have been fetched that never reached the program. So is a block whose position is unknown:
   the program sought, or assigned again, to a place that is no number.
3. *An aborted block never happened.* The consumer returns to its group's committed offsets, and
   without any to the first record that it returned. A partition that the program has sought, or
   assigned at an offset, since the last commit and before the block returns to that offset
   (`Start`). After a commit in doubt only the committed offsets are right.

Sources: KIP-98 (offsets in transactions), KIP-447 (group metadata fences them).
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import confluent_kafka
from confluent_kafka import OFFSET_INVALID, OFFSET_STORED, KafkaException, Message, TopicPartition

from txn.client.beginnings import NO_OFFSET
from txn.client.places import names_of, places_of, positions_of
from txn.identifiers import TopicPartition as Place

Offsets = Mapping[Place, int]


@dataclass(slots=True)
class Start:
    """Where the program had a partition begin, by a seek or by an assignment at an offset.

    Attributes:
        offset: The target. A relative one, below 0, becomes the first record handed out after it.
        made_s: `time.monotonic` of a seek; minus infinity where the partition came with it.
    """

    offset: int
    made_s: float


class Positions:
    """The positions of one consumer, by what it hands out and by what becomes of its partitions.

    Args:
        consumer: Is asked for its assignment and the offsets after its last records.
    """

    def __init__(self, consumer: confluent_kafka.Consumer) -> None:
        self._consumer = consumer
        self._awaited: set[Place] = set()  # assigned, and nothing handed out yet
        self._origins: dict[Place, int] = {}  # first offset handed out since the assignment
        self._committed: dict[Place, int] = {}  # positions that a transaction has committed
        self._sought: dict[Place, int | None] = {}  # targets, until a record; None: no number
        self._left: dict[Place, int | None] = {}  # positions at unassigning, not committed yet
        self._starts: dict[Place, Start] = {}  # made since the last commit, the newest of each
        self._unread: dict[Place, Start] = {}  # those with a relative target and no record yet
        self._kept: dict[Place, Start | None] | None = None  # starts at the begin of a block
        self._doubted: dict[Place, Start | None] = {}  # taken out of those by a commit
        self.in_block: Callable[[], bool] = _outside_block
        """Whether an open block commits its offsets."""
        self.is_ahead = False
        """Whether its last block neither committed nor was rewound."""
        self.on_awaiting: Callable[[], None] = _do_nothing
        """Called when a partition begins to wait for its first record, which a read has to note."""
        self.behind_last: Callable[[Place], int | None] = _unknown
        """The offset behind the last record that a partition has handed out; None: unknown."""
        self._commit_made_s = -math.inf  # `time.monotonic` of the last one outside transactions
        self._lost: set[Place] = set()  # taken away with records handed out, not committed
        self._assigned_places: set[Place] = set()  # assigned during this poll or consume
        self._revoked_places: set[Place] = set()  # taken away during it, and not assigned again
        self._was_interrupted = False  # poll or consume raised: the records it had taken are gone

    # ------------------------------------------------------------ what is asked

    def reached(self) -> dict[Place, int]:
        """Return the positions: behind the last record handed out, or the target of a seek.

        A position has also passed the markers and aborted records that follow the record.

        Partitions that the program has unassigned since the last commit are among them.
        """
        positions = {**self._left, **self._positions_by_place(self._consumer.assignment())}
        return {place: offset for place, offset in positions.items() if offset is not None}

    def describe_loss(self) -> str | None:
        """Describe the records handed out since the last rewind that are out of reach now."""
        if self._lost:
            return f"it lost {names_of(self._lost)} with records handed out and not committed"
        if self._was_interrupted:
            return "a signal interrupted its poll, which may have swallowed records"
        return None

    def describe_unknown_positions(self) -> str | None:
        """Describe the partitions whose position cannot be committed, as it is no number yet."""
        places = {p for p, offset in (*self._sought.items(), *self._left.items()) if offset is None}
        return names_of(places) if places else None

    def rewind_offset(self, place: Place, committed: int) -> int | None:
        """Return the offset that a rewind goes to; None if the partition stands there already.

        Args:
            place: An assigned partition.
            committed: Its committed offset; below 0: none.
        """
        start = self._starts.get(place)
        if start is not None:
            return None if self._unread.get(place) is start else start.offset
        if committed >= 0:
            return committed
        if place in self._awaited:  # it has at most passed markers and aborted records
            return None
        # Unknown too when a signal swallowed the first record. librdkafka takes an invalid offset
        # for "where auto.offset.reset says".
        return self._origins.get(place, OFFSET_INVALID)

    def _begin_at(self, place: Place, offset: int, made_s: float) -> Start:
        """Remember that the program had a partition begin at an offset."""
        start = self._starts[place] = Start(offset, made_s)
        self._unread.pop(place, None)
        if offset < 0:
            self._unread[place] = start
        return start

    def _forget_starts(self, places: Iterable[Place]) -> None:
        """Forget such offsets: a rewind goes to the committed ones."""
        for place in places:
            self._starts.pop(place, None)
            self._unread.pop(place, None)

    def note_assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """Remember partitions that the group or the program assigned, and where they begin."""
        self.on_awaiting()
        for partition in partitions:
            place = (partition.topic, partition.partition)
            self._assigned_places.add(place)
            self._revoked_places.discard(place)
            if partition.offset in NO_OFFSET:
                self._forget_starts([place])
            else:
                # One that comes with its partition is older than any block.
                made_s = time.monotonic() if place in self._left else -math.inf
                start = self._begin_at(place, partition.offset, made_s)
                if self._kept is not None:
                    self._kept.setdefault(place, start)
            if place in self._left:  # handed out, not committed: as a seek
                del self._left[place]
                self._sought[place] = partition.offset if partition.offset >= 0 else None
                continue
            self._sought.pop(place, None)
            self._origins.pop(place, None)
            self._committed.pop(place, None)
            self._awaited.add(place)

    def note_revoked(self, partitions: list[TopicPartition]) -> None:
        """Remember partitions that the group took away. Their uncommitted records are lost."""
        self._lost |= self._uncommitted(partitions).keys()
        self._revoked_places |= places_of(partitions)
        self._forget(partitions)
        for place in places_of(partitions):
            if self._kept is not None:
                self._kept.pop(place, None)

    @contextmanager
    def unassigning(self, partitions: list[TopicPartition]) -> Iterator[None]:
        """Keep the positions of partitions that the program unassigns."""
        before = dict(self._left)
        uncommitted = self._uncommitted(partitions)
        self._left.update({p: uncommitted[p] for p in uncommitted if p not in self._lost})
        try:
            yield
        except KafkaException:
            self._left = before
            raise
        self._forget(partitions)
        for place in places_of(partitions) - self._revoked_places:
            if self._kept is not None:
                self._kept.setdefault(place, None)  # it was there without a start

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        self._forget_starts(places_of(partitions))
        for place in places_of(partitions):
            self._sought.pop(place, None)
            self._awaited.discard(place)

    def note_begun(self, since_s: float, in_block: Callable[[], bool]) -> None:
        """Remember that a block began at `since_s`: if it aborts, no later seek has been made.

        Args:
            since_s: `time.monotonic` of its begin.
            in_block: Whether the block is still open.
        """
        self.in_block = in_block
        self.is_ahead = True
        self._kept = {p: start for p, start in self._starts.items() if start.made_s <= since_s}
        self._doubted = {}

    def note_asked(self, offsets: Offsets) -> None:
        """Remember that a commit of these positions is asked for.

        Until it is known to have failed, a rewind of their partitions goes to committed offsets.
        """
        if self._kept is not None:
            self._doubted = {p: start for p, start in self._kept.items() if p in offsets}
            self._kept = {p: start for p, start in self._kept.items() if p not in offsets}

    def note_refused(self) -> None:
        """Remember that the commit that was asked for has failed."""
        if self._kept is not None:
            self._kept |= self._doubted

    def note_committed(self, offsets: Offsets) -> None:
        """Remember that a transaction has committed these positions."""
        self.is_ahead = False
        self._committed.update(offsets)
        self._left.clear()
        self._sought = {p: offset for p, offset in self._sought.items() if offset is not None}
        self._forget_starts(offsets)
        self._kept = None
        self._doubted = {}

    def note_aborted(self) -> None:
        """Forget the seeks and assignments that a block made, if one has not committed."""
        if self._kept is not None:
            self._starts = {p: start for p, start in self._kept.items() if start is not None}
            self._kept = None

    def note_rewound(self, partitions: Iterable[TopicPartition]) -> None:
        """Remember that the partitions are back where a block begins."""
        self.on_awaiting()
        places = places_of(partitions)
        self.is_ahead = False
        self._starts = {p: start for p, start in self._starts.items() if p in places}
        self._unread = {p: start for p, start in self._starts.items() if start.offset < 0}
        self._sought = {p: start.offset for p, start in self._starts.items() if start.offset >= 0}
        self._lost.clear()
        self._left.clear()
        self._was_interrupted = False
        for place in places:
            self._origins.pop(place, None)
            self._awaited.add(place)

    def note_interrupt(self) -> None:
        """Remember that records may have been taken that never reached the program."""
        self.on_awaiting()
        self._was_interrupted = True
        self._awaited.clear()  # the next record need not be the first
        self._unread.clear()

    def has_committed_since(self, since_s: float) -> bool:
        """Return True if it committed outside transactions after this `time.monotonic`."""
        return self._commit_made_s > since_s

    def is_uncommitted(self, since_s: float) -> bool:
        """Return True if it has handed out records that nothing has committed or will.

        A commit outside transactions since this `time.monotonic` counts for all of them.
        """
        if self.in_block() or self.has_committed_since(since_s):
            return False
        try:
            return bool(self._uncommitted(self._consumer.assignment()))
        except (KafkaException, RuntimeError):  # it is closed, for one
            return False

    def _positions_by_place(self, partitions: list[TopicPartition]) -> dict[Place, int | None]:
        """Return the positions of partitions that have one; None for one that is no number."""
        positions = {
            (p.topic, p.partition): p.offset for p in positions_of(self._consumer, partitions)
        }
        places = places_of(partitions)
        return positions | {p: offset for p, offset in self._sought.items() if p in places}

    def _uncommitted(self, partitions: list[TopicPartition]) -> dict[Place, int | None]:
        """Return the positions of partitions that another reader would not begin at.

        That one begins at the offset committed last, or at the first record handed out.
        """
        found = {}
        for place, offset in self._positions_by_place(partitions).items():
            begin = self._committed.get(place, self._origins.get(place))
            is_untouched = begin is None and self._sought.get(place) is not None
            has_moved = offset != begin and not is_untouched
            if has_moved and not self._has_only_passed(place, begin):
                found[place] = offset
        return found

    def _has_only_passed(self, place: Place, begin: int | None) -> bool:
        """Return True if only markers and aborted records lie between `begin` and the position."""
        if place in self._sought:
            return False
        if place in self._awaited:
            return True
        behind = self.behind_last(place)
        return begin is not None and behind is not None and behind <= begin

    def to_commit(self) -> list[TopicPartition]:
        """Return the positions of assigned partitions, with leader epochs where they are known."""
        assigned = self._consumer.assignment()
        places = places_of(assigned)
        sought = [
            TopicPartition(*place, offset)
            for place, offset in self._sought.items()
            if place in places and offset is not None
        ]
        read = positions_of(self._consumer, assigned)
        return sought + [p for p in read if (p.topic, p.partition) not in self._sought]

    @contextmanager
    def seeking(self, partition: TopicPartition) -> Iterator[None]:
        """Remember a seek of the program's; one that is refused changes nothing."""
        self.on_awaiting()
        place = (partition.topic, partition.partition)
        before = dict(self._sought)
        if partition.offset >= 0:
            self._sought[place] = partition.offset
        elif place in self._uncommitted([partition]):
            self._sought[place] = None
        else:
            self._sought.pop(place, None)
        try:
            yield
        except KafkaException:
            self._sought = before
            raise
        except BaseException:
            self._sought[place] = None  # a signal: it may be done
            raise
        if partition.offset == OFFSET_STORED:
            self._forget_starts([place])
        else:
            self._begin_at(place, partition.offset, time.monotonic())

    def note_commit(self, places: Iterable[Place]) -> None:
        """Remember that the program has committed these partitions outside transactions."""
        self._commit_made_s = time.monotonic()
        self._forget_starts(places)

    def begin_read(self) -> None:
        """Remember that a poll or consume begins."""
        self._assigned_places.clear()
        self._revoked_places.clear()

    def awaiting(self) -> list[Place]:
        """Return the partitions whose next record a read has to note."""
        return [*{*self._awaited, *self._sought, *self._unread}]

    def note_messages(self, messages: Iterable[Message]) -> list[Place]:
        """Remember records that a read hands out; return what `note_firsts` returns."""
        firsts = []
        if self._awaited or self._sought or self._unread:
            firsts = self.note_firsts(
                (_place_of(message), message.offset() or 0)
                for message in messages
                if message.error() is None
            )
        if self._revoked_places:
            # Taken before their partition was, which `note_revoked` did not know of.
            self._lost |= self._revoked_places & {
                _place_of(message) for message in messages if message.error() is None
            }
        return firsts

    def note_firsts(self, records: Iterable[tuple[Place, int]]) -> list[Place]:
        """Remember records handed out; the first one since an assignment or a seek matters.

        Args:
            records: Their partitions and offsets in order, or the first one of each partition.

        Returns:
            The partitions that handed out nothing since their assignment until now.
        """
        begun = []
        for place, offset in records:
            self._sought.pop(place, None)
            start = self._unread.pop(place, None)
            if start is not None:
                start.offset = offset
            if place in self._awaited:
                self._awaited.discard(place)
                self._origins[place] = offset
                begun.append(place)
        return begun

    def note_expired(self) -> None:
        """Remember that the group has dropped the member, since it did not poll in time."""
        assigned = self._consumer.assignment()
        gone = [p for p in assigned if (p.topic, p.partition) not in self._assigned_places]
        self._lost |= self._uncommitted(gone).keys()


def _place_of(message: Message) -> Place:
    return str(message.topic()), message.partition() or 0


def _outside_block() -> bool:
    return False


def _unknown(_place: Place) -> int | None:
    return None


def _do_nothing() -> None:
    pass
