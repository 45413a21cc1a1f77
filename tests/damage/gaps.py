"""Damage that a start is known not to notice. Each entry is a promise that is not kept yet.

`test_damaged_directories.py` passes over these cases, and `damage.runner` reports them as "known
gap" with its observation. A change that closes a gap takes its entry out.
"""

from pathlib import Path

from damage.cases import BASE_OFFSET_BYTES, DamageCase
from damage.left import batch_positions


def gap_of(case: DamageCase, left: Path) -> str | None:
    """Why a case is passed over; None if it is not."""
    path = Path(case.path)
    if path.suffix == ".txnindex" and case.damage in LOST_ENTRIES and case.broker == "kafka":
        return "Kafka keeps no proof of how many aborted transactions an index has"
    is_first_gone = path.suffix == ".log" and case.damage == "removed" and _is_first(left / path)
    if is_first_gone and case.broker == "kafka":
        return "Kafka notes no log start that the first file's name tells, and others afterwards"
    if path.suffix == ".log" and case.damage in FLIPPED and _is_leader_epoch(case, left / path):
        return "no checksum covers the leader epoch of a batch, as in Apache Kafka"
    return None


FLIPPED = ("bit flipped at the start", "bit flipped in the middle", "bit flipped at the end")
LEADER_EPOCH = range(12, 16)
"""Its place in a batch."""


def _is_leader_epoch(case: DamageCase, log: Path) -> bool:
    stored = log.read_bytes()
    if not batch_positions(stored):
        return False
    places = {"bit flipped at the start": 0, "bit flipped in the middle": len(stored) // 2}
    position = places.get(case.damage, len(stored) - 1)
    begins = batch_positions(stored)
    within = position - max((each for each in begins if each <= position), default=position)
    if position - within == begins[-1] and within in range(BASE_OFFSET_BYTES):
        within += BASE_OFFSET_BYTES  # as `damage` does it
    return within in LEADER_EPOCH


LOST_ENTRIES = ("emptied", "cut to half", "cut by a byte")


def _is_first(log: Path) -> bool:
    logs = sorted(log.parent.glob("*.log"))
    return bool(batch_positions(log.read_bytes())) and log == logs[0] and len(logs) > 1
