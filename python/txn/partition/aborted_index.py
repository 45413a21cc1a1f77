"""The aborted transactions of a partition, which a read_committed reader has to leave out.

A fetch below the last stable offset returns records of committed and of aborted transactions alike.
It names the aborted ones, and the client drops their records (P4).

An entry is (producer_id, first_offset, last_offset, last_stable_offset): first record,
abort marker, and the last stable offset right after that marker. Entries come in the order
of their markers, so they are sorted by `last_offset` and the first that can overlap
`[start, end)` is found by bisection. The search may end at an entry whose `last_stable_offset` is
at or above `end`. A transaction that ended later was open then, or began later, so it starts at or
above that offset.

The log answers its readers from its own entries (`rust/txn-log/src/aborted.rs`); tests compare
these answers with the rule here.

Pure. Source: KIP-98, transaction index.
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence

from txn.partition.admission import AbortedTxn


class AbortedIndex:
    """Every aborted transaction the partition knows, by its marker's offset."""

    __slots__ = ("_entries", "_last_offsets")

    def __init__(self, entries: Sequence[tuple[int, int, int, int]] = ()) -> None:
        self._entries: list[AbortedTxn] = []
        self._last_offsets: list[int] = []
        for entry in entries:
            self.add(AbortedTxn(*entry))

    def add(self, entry: AbortedTxn) -> bool:
        """Add an aborted transaction; return False if one with this marker was there.

        A live marker is always the newest. Recovery may meet one that the stored index had
        already: the log is the truth, so the entry computed from it stays.
        """
        last_offset = entry.last_offset
        if not self._last_offsets or last_offset > self._last_offsets[-1]:
            self._entries.append(entry)
            self._last_offsets.append(last_offset)
            return True
        position = bisect_left(self._last_offsets, last_offset)
        if self._last_offsets[position] == last_offset:
            self._entries[position] = entry
            return False
        self._entries.insert(position, entry)
        self._last_offsets.insert(position, last_offset)
        return True

    def aborted_in(self, start: int, end: int) -> list[tuple[int, int]]:
        """List the aborted transactions that overlap `[start, end)`.

        Args:
            start: First offset of the fetch, inclusive.
            end: Offset after the last one returned.

        Returns:
            (producer_id, first_offset) of each, by first offset.

        Cost: one bisection, then entries until one whose last stable offset reaches `end`.
        """
        overlapping = []
        for position in range(bisect_left(self._last_offsets, start), len(self._entries)):
            entry = self._entries[position]
            if entry.first_offset < end:
                overlapping.append((entry.first_offset, entry.producer_id))
            if entry.last_stable_offset >= end:
                break
        return [(producer_id, first_offset) for first_offset, producer_id in sorted(overlapping)]

    def forget_below(self, offset: int) -> None:
        """Forget the transactions whose abort marker lies below `offset`."""
        below = bisect_left(self._last_offsets, offset)
        del self._entries[:below], self._last_offsets[:below]

    def forget(self, last_offsets: Collection[int]) -> None:
        """Forget the transactions with these abort markers."""
        kept = [entry for entry in self._entries if entry.last_offset not in last_offsets]
        self._entries, self._last_offsets = kept, [entry.last_offset for entry in kept]

    def entries(self) -> list[AbortedTxn]:
        """List all entries, by `last_offset`; for verification tools."""
        return list(self._entries)
