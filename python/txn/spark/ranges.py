"""Ranges of offsets: the end of a batch, and its parts for the tasks.

The arithmetic is that of Spark's Kafka source, so that the same options give the same batches
and the same tasks.

Pure: no client, no clock. Source: KafkaMicroBatchStream, KafkaOffsetRangeCalculator, Spark 4.2
(behaviour).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from txn.identifiers import TopicPartition
from txn.spark.mark import Offsets


@dataclass(frozen=True, slots=True)
class Range:
    """Some records of one partition: offsets [start, end)."""

    place: TopicPartition
    start: int
    end: int
    topic_id: str | None = None
    """The topic these offsets belong to; None if the cluster gives topics no id."""

    @property
    def size(self) -> int:
        """Number of offsets; markers and aborted records among them have no row."""
        return self.end - self.start


def limited(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], rows_max: int
) -> Offsets:
    """The end of a batch of at most about `rows_max` offsets, shared out by the waiting records.

    A partition with anything waiting moves by at least one, so none is starved.
    """
    waiting = {place: max(0, end - start[place]) for place, end in latest.items()}
    total = sum(waiting.values())
    if total <= rows_max:
        return dict(latest)
    ends = {}
    for place, size in waiting.items():
        share = rows_max * (size / total)
        ends[place] = start[place] + min(size, math.ceil(share) if share < 1 else int(share))
    return ends


class BatchDelay:
    """Puts a batch off until enough records wait for it, or until it was put off long enough.

    The first batch after a start is not put off.
    """

    def __init__(self, rows_min: int, delay_ms_max: int) -> None:
        self._rows_min = rows_min
        self._delay_ms_max = delay_ms_max
        self._begun_ms: int | None = None
        """The last time a batch was let through."""

    def is_due(
        self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], now_ms: int
    ) -> bool:
        """Return True if a batch from `start` may begin; one that may counts as begun."""
        waiting = sum(end - start[place] for place, end in latest.items())
        is_late = self._begun_ms is None or now_ms - self._begun_ms >= self._delay_ms_max
        if not is_late and waiting < self._rows_min:
            return False
        self._begun_ms = now_ms
        return True


def split(
    ranges: Sequence[Range], partitions_min: int | None, records_max: int | None = None
) -> list[Range]:
    """Split ranges for the tasks.

    Args:
        ranges: Those without records are left out.
        partitions_min: `minPartitions`; about so many parts, the larger ranges into more.
        records_max: `maxRecordsPerPartition`; no part has more offsets. It counts first.
    """
    parts = [span for span in ranges if span.size > 0]
    if records_max is not None:
        parts = [part for span in parts for part in _cut(span, -(-span.size // records_max))]
    if partitions_min is None or len(parts) >= partitions_min:
        return parts
    total = sum(span.size for span in parts)
    whole = [span for span in parts if _share(span.size, total, partitions_min) == 1]
    # Small ranges stay whole, and their records count no more in the shares of the others.
    whole_places = {span.place for span in whole}
    total -= sum(span.size for span in whole)
    count = max(partitions_min - len(whole), 1)
    return [
        part
        for span in parts
        for part in _cut(span, 1 if span.place in whole_places else _share(span.size, total, count))
    ]


def _share(size: int, total: int, count: int) -> int:
    return max(math.floor(size / total * count + 0.5), 1)


def _cut(span: Range, count: int) -> list[Range]:
    """A range in `count` parts, the smaller first; those without records are left out."""
    parts, start = [], span.start
    for left in range(count, 0, -1):
        end = start + (span.end - start) // left
        if end > start:
            parts.append(replace(span, start=start, end=end))
        start = end
    return parts


def shared(spans: Sequence[Range], records_max: int) -> list[list[Range]]:
    """Neighbouring ranges as groups of at most `records_max` offsets; a larger range is alone."""
    groups: list[list[Range]] = []
    size = 0
    for span in spans:
        if not groups or size + span.size > records_max:
            groups.append([])
            size = 0
        groups[-1].append(span)
        size += span.size
    return groups
