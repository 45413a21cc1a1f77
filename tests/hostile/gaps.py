"""Damage that a start is known not to notice. Each entry is a promise that is not kept yet.

`test_damaged_directories.py` passes over these cases, and `hostile.runner` reports them as "known
gap" with its observation. A change that closes a gap takes its entry out.
"""

from pathlib import Path

from hostile.damage import Case
from hostile.left import batch_positions


def gap_of(case: Case, left: Path) -> str | None:
    """Why a case is passed over; None if it is not."""
    path = Path(case.path)
    if path.suffix == ".txnindex" and case.damage in LOST_ENTRIES and case.broker == "kafka":
        return "Kafka keeps no proof of how many aborted transactions an index has"
    is_first_gone = path.suffix == ".log" and case.damage == "removed" and _is_first(left / path)
    if is_first_gone and (case.state != "closed" or case.broker == "kafka"):
        return "a first segment that is gone looks like one that retention removed"
    return None


LOST_ENTRIES = ("emptied", "cut to half", "cut by a byte")


def _is_first(log: Path) -> bool:
    logs = sorted(log.parent.glob("*.log"))
    return bool(batch_positions(log.read_bytes())) and log == logs[0] and len(logs) > 1
