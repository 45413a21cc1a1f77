"""Places in a topic as people write them: `earliest`, `latest`, an offset, a time, `2h-ago`.

earliest, latest     the ends of a partition
217                  an offset
-10                  so many offsets before the end
2h-ago, 90s-ago      the first record that is not older: ms, s, m, h or d
2026-11-23T17:06     the first record at or after a time; without a zone it is UTC
"""

import datetime
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from txn.admin.cluster import RunningCluster
from txn.cluster.source import EARLIEST, LATEST
from txn.errors import ConfigError
from txn.hints import did_you_mean
from txn.identifiers import TopicPartition
from txn.moments import UNITS_MS

OFFSET_MAX: Final = 2**63 - 1


class OffsetSpecKind(Enum):
    """The ways to name a place."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    BEFORE_END = "before the end"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """A place in every partition; `value` is an offset, a distance or milliseconds since 1970."""

    kind: OffsetSpecKind
    value: int = 0

    def is_behind(self, other: "OffsetSpec") -> bool:
        """True if this place comes after another one in any log: both are of one kind."""
        if self.kind is not other.kind:
            return False
        if self.kind is OffsetSpecKind.BEFORE_END:
            return self.value < other.value
        return self.value > other.value


def parse_offset_spec(text: str, *, now_ms: int) -> OffsetSpec:
    """Read a place. Raises ConfigError."""
    plain = text.strip()
    for kind in (OffsetSpecKind.EARLIEST, OffsetSpecKind.LATEST):
        if plain.lower() == kind.value:
            return OffsetSpec(kind)
    number = re.fullmatch(r"(-?)([0-9]{1,19})", plain)
    if number is not None and int(number[2]) <= OFFSET_MAX:
        kind = OffsetSpecKind.BEFORE_END if number[1] else OffsetSpecKind.OFFSET
        return OffsetSpec(kind, int(number[2]))
    age = re.fullmatch(r"([0-9]{1,12})\s*(ms|s|m|h|d)[ -]ago", plain)
    if age is not None:
        return OffsetSpec(OffsetSpecKind.TIME, max(now_ms - int(age[1]) * UNITS_MS[age[2]], 0))
    try:
        at = datetime.datetime.fromisoformat(plain)
    except ValueError:
        hint = did_you_mean(plain, ("earliest", "latest")) or "."
        raise ConfigError(
            f"{text!r} is no place in a topic{hint} Give earliest, latest, an offset, -10 for ten "
            "before the end, 2h-ago, or a time as in 2026-11-23T17:06"
        ) from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return OffsetSpec(OffsetSpecKind.TIME, max(int(at.timestamp() * 1000), 0))


def offsets_at(
    cluster: RunningCluster,
    partitions: Collection[TopicPartition],
    place: OffsetSpec,
    *,
    is_committed: bool = True,
) -> Mapping[TopicPartition, int]:
    """The offset of a place in each partition, within its log.

    Args:
        cluster: Where to ask.
        partitions: Partitions of any topics. A partition without a leader is left out.
        place: The place. A time after the last record is the end.
        is_committed: The end is the last stable offset, not the high watermark.
    """
    if place.kind is OffsetSpecKind.EARLIEST:
        return cluster.offsets(partitions, EARLIEST)
    ends = cluster.offsets(partitions, LATEST, is_committed=is_committed)
    if place.kind is OffsetSpecKind.LATEST:
        return ends
    if place.kind is OffsetSpecKind.TIME:
        found = cluster.offsets(partitions, place.value, is_committed=is_committed)
        return {each: found[each] if found.get(each, -1) >= 0 else ends[each] for each in ends}
    starts = cluster.offsets(partitions, EARLIEST)
    is_distance = place.kind is OffsetSpecKind.BEFORE_END
    wanted = {each: ends[each] - place.value if is_distance else place.value for each in ends}
    return {
        each: min(max(wanted[each], starts[each]), ends[each]) for each in ends if each in starts
    }
