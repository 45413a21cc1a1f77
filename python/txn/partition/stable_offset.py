"""The open transactions of a partition, and so how far a read_committed reader may see.

The last stable offset (LSO) is the first offset of the oldest open transaction, or the log
end if none is open. It never moves back while the broker runs (P5): a transaction opens at the log
end, which is at or above the LSO. Ending one can only raise the minimum.

Because transactions open at the log end, their first offsets grow in the order in which
they open. A dict keeps that order, so its first value is the oldest, and no tree is needed.

Pure. Source: KIP-98, "Transaction Markers and the LSO".
"""

from collections.abc import Mapping

from txn.partition.producer_state_entry import NO_OFFSET


class OpenTransactions:
    """First offsets of the open transactions, by producer id.

    Attributes:
        first_offset: First offset of the oldest open transaction, or -1.
    """

    __slots__ = ("_first_offsets", "_newest", "first_offset")

    def __init__(self, first_offsets: Mapping[int, int] | None = None) -> None:
        by_offset = sorted((first_offsets or {}).items(), key=lambda entry: entry[1])
        self._first_offsets = dict(by_offset)
        self._newest = by_offset[-1][1] if by_offset else NO_OFFSET
        self.first_offset = by_offset[0][1] if by_offset else NO_OFFSET

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Note that a producer's transaction opened with the batch at this offset."""
        assert first_offset > self._newest, f"{first_offset} opens after {self._newest}"
        assert producer_id not in self._first_offsets, f"{producer_id} has a transaction open"
        self._first_offsets[producer_id] = self._newest = first_offset
        if self.first_offset < 0:
            self.first_offset = first_offset

    def end(self, producer_id: int) -> None:
        """Note that a producer's open transaction ended."""
        if self._first_offsets.pop(producer_id) == self.first_offset:
            self.first_offset = next(iter(self._first_offsets.values()), NO_OFFSET)
