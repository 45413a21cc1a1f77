"""Readers of both isolation levels: a consumer's use of the result of a fetch.

Under read_committed the broker returns records of aborted transactions too and names those
transactions; the consumer leaves them out, up to the marker of each. So a broker that names
too few shows aborted records, and one that names too many hides committed ones.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sim.broker import FetchData, SimBroker
from sim.history import Fate, History, Place
from txn.storage.base import BatchKind
from txn.wire.error_codes import ErrorCode

OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
CORRUPT_MESSAGE = int(ErrorCode.CORRUPT_MESSAGE)
MARKERS = (BatchKind.ABORT_MARKER, BatchKind.COMMIT_MARKER)
Seen = tuple[int, bytes]
"""Offset and value."""


def records_of(fetched: FetchData, *, is_committed: bool, start: int = 0) -> Iterator[Seen]:
    """The records an application gets of a fetch."""
    aborted = sorted(fetched.aborted, key=lambda entry: entry[1])
    left_out: set[int] = set()
    for batch in fetched.batches:
        while aborted and aborted[0][1] <= batch.base_offset:
            left_out.add(aborted.pop(0)[0])
        if batch.kind in MARKERS and not batch.records:
            if batch.kind is BatchKind.ABORT_MARKER:
                left_out.discard(batch.producer_id)
            continue
        if is_committed and batch.producer_id in left_out and batch.kind is not BatchKind.PLAIN:
            continue
        for record in batch.records:
            if record.offset >= start:
                yield record.offset, record.value or b""


def read_all(broker: SimBroker, place: Place, *, is_committed: bool, step: int = 3) -> list[Seen]:
    """Read a partition from its start, a few batches at a time; damaged ones are passed over."""
    seen: list[Seen] = []
    offset = broker.storage.logs[place].log_start_offset
    while True:
        fetched = broker.fetch(place, offset, step, is_committed=is_committed)
        if fetched.code == CORRUPT_MESSAGE:
            offset = broker.behind_damage(place, offset)
            continue
        seen += records_of(fetched, is_committed=is_committed, start=offset)
        if fetched.next_offset == offset:
            return seen
        offset = fetched.next_offset


@dataclass(slots=True)
class ReaderEnds:
    """The end of a partition, as a reader was told."""

    high_watermark: int = 0
    last_stable_offset: int = 0


class Follower:
    """A read_committed reader that goes along with the log, and watches its ends."""

    def __init__(self, history: History, places: tuple[Place, ...]) -> None:
        self._history = history
        self._places = places
        self._ends: dict[Place, ReaderEnds] = {place: ReaderEnds() for place in places}
        self._positions: dict[Place, int] = dict.fromkeys(places, 0)

    def power_failed(self) -> None:
        """Unsynced records may be gone; begin again."""
        self._positions = dict.fromkeys(self._places, 0)
        for ends in self._ends.values():
            ends.high_watermark = 0

    def starts_at(self, place: Place, log_end_offset: int) -> None:
        """After a power failure a log may have lost its end, and other records may follow."""
        ends = self._ends[place]
        ends.last_stable_offset = min(ends.last_stable_offset, log_end_offset)

    def marker_is_refused(self, place: Place, first_offset: int) -> None:
        """Power took a marker, and its log is full when the broker starts.

        The decision stands and the marker follows when there is space. Until then the last stable
        offset is back at the transaction's first offset.
        """
        ends = self._ends[place]
        ends.last_stable_offset = min(ends.last_stable_offset, first_offset)

    def poll(self, broker: SimBroker, batches_max: int = 2) -> None:
        """Read the new records of every partition."""
        for place in self._places:
            log = broker.storage.logs[place]
            ends = self._ends[place]
            deleted = self._history.log_starts.get(place, 0)
            if log.log_start_offset < deleted:
                self._history.found(
                    "deleted-read",
                    f"{place[0]}-{place[1]} is read from {log.log_start_offset} on; records below "
                    f"{deleted} were deleted",
                )
            if (
                ends.high_watermark == log.log_end_offset
                and ends.last_stable_offset == log.last_stable_offset == self._positions[place]
            ):
                continue
            self._poll(broker, place, batches_max)

    def _poll(self, broker: SimBroker, place: Place, batches_max: int) -> None:
        history, position = self._history, self._positions[place]
        fetched = broker.fetch(place, position, batches_max, is_committed=True)
        where = f"{place[0]}-{place[1]}"
        ends = self._ends[place]
        if fetched.last_stable_offset < ends.last_stable_offset:
            history.found(
                "lso-regress",
                f"{where}: from {ends.last_stable_offset} to {fetched.last_stable_offset}",
            )
        if fetched.high_watermark < ends.high_watermark:
            history.found(
                "lost-write", f"{where} ends at {fetched.high_watermark}, not {ends.high_watermark}"
            )
        ends.last_stable_offset = fetched.last_stable_offset
        ends.high_watermark = fetched.high_watermark
        if fetched.code == OUT_OF_RANGE:
            self._positions[place] = broker.storage.logs[place].log_start_offset
            return
        if fetched.code == CORRUPT_MESSAGE:
            self._positions[place] = broker.behind_damage(place, position)
            return
        for batch in fetched.batches:
            if broker.storage.logs[place].is_damaged(batch.base_offset):
                history.found("damage-served", f"{where}: the batch at {batch.base_offset}")
        for offset, value in records_of(fetched, is_committed=True, start=position):
            self._see(place, offset, value)
        self._positions[place] = fetched.next_offset

    def _see(self, place: Place, offset: int, value: bytes) -> None:
        history = self._history
        history.seen_committed[value] = place
        attempt = history.owner.get(value)
        if attempt is not None and attempt.fate is Fate.OPEN:
            name = "late-end" if attempt.follows_lost_end else "precommitted-read"
            history.found(
                name, f"{value.decode()} at {offset} of {place[0]}-{place[1]}, still open"
            )
