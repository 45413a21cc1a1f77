"""The letters of a partition that are redriven, as a committed offset and its metadata. Pure.

The group `txn-dead-letters` has committed, for each partition, the offset of the first letter that
is kept. Letters behind it may be redriven too, where a redrive chose some of them. The metadata of
the offset names those that are kept up to the end of the last redrive:

    1;20;3-7,15-15      everything below offset 20 is redriven, but 3 to 7 and 15

So one offset commit in the transaction of a redrive says all of it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from txn.errors import RejectedError

METADATA_BYTES_MAX: Final = 4_096
"""offset.metadata.max.bytes, where a broker leaves it."""

_METADATA: Final = re.compile(r"1;(\d{1,19});((?:\d{1,19}-\d{1,19}(?:,|$))*)")


@dataclass(frozen=True, slots=True)
class Settled:
    """The letters of one partition that are redriven.

    Attributes:
        end: Letters from this offset on are kept.
        kept: Ranges of letters below `end` that are kept, both offsets inclusive, in order.
    """

    end: int
    kept: Sequence[tuple[int, int]] = ()

    @property
    def offset(self) -> int:
        """The offset to commit: of the first letter that is kept."""
        return self.kept[0][0] if self.kept else self.end

    @property
    def metadata(self) -> str:
        """The metadata to commit; empty if the offset says it all.

        Raises:
            RejectedError: it is larger than a broker keeps.
        """
        if not self.kept:
            return ""
        text = f"1;{self.end};" + ",".join(f"{first}-{last}" for first, last in self.kept)
        if len(text) > METADATA_BYTES_MAX:
            raise RejectedError(
                f"the choice leaves {len(self.kept)} groups of letters between those it redrives, "
                f"more than fit into an offset's metadata of {METADATA_BYTES_MAX} bytes. Redrive "
                "without a filter, or choose fewer letters"
            )
        return text

    def has(self, offset: int) -> bool:
        """Return True if the letter at an offset is redriven."""
        return offset < self.end and not any(first <= offset <= last for first, last in self.kept)


def settled_of(offset: int, metadata: str | None) -> Settled:
    """Return what a committed offset says; metadata that cannot be read counts as none."""
    found = _METADATA.fullmatch(metadata or "")
    if found is None:
        return Settled(max(offset, 0))
    ranges = [pair.split("-") for pair in found[2].split(",") if pair]
    return Settled(int(found[1]), tuple((int(first), int(last)) for first, last in ranges))


def settled_after(before: Settled, seen: Sequence[tuple[int, bool]]) -> Settled:
    """Return the state after a look at letters.

    Args:
        before: The state before.
        seen: Offset and whether it is redriven now, of every letter from `before.offset` on, in
            order, up to some letter. Letters behind stay as they are.
    """
    if not seen:
        return before
    last_seen = seen[-1][0]
    kept: list[tuple[int, int]] = []
    is_open = False
    for offset, is_done in seen:
        if is_done:
            is_open = False
        elif is_open:
            kept[-1] = (kept[-1][0], offset)
        else:
            kept.append((offset, offset))
            is_open = True
    for first, last in before.kept:
        if last > last_seen:
            kept.append((max(first, last_seen + 1), last))
    return Settled(max(before.end, last_seen + 1), tuple(kept))
