"""Damage that a start is known not to notice. Each entry is a promise that is not kept yet.

`test_damaged_directories.py` passes over these cases, and `hostile.runner` tells of them as
"known gap" with what it saw. Who closes a gap takes its entry out.
"""

from pathlib import Path

from hostile.damage import Case
from hostile.left import batch_positions


def gap_of(case: Case, left: Path) -> str | None:
    """Why a case is passed over; None if it is not."""
    path = Path(case.path)
    if path.suffix == ".txnindex" and case.damage in LOST_ENTRIES:
        return "an index of aborted transactions that lost whole entries is believed"
    if path.name == "leader-epoch-checkpoint" and case.damage.startswith("bit flipped"):
        return "another first offset of a leader epoch is believed: no checksum covers it"
    if path.suffix == ".log" and case.damage == "removed" and _is_first(left / path):
        return "a first segment that is gone looks like one that retention removed"
    if case.place == "__cluster_metadata-0" and case.state == "power":
        return "metadata that is gone after a power failure is made anew"
    return None


LOST_ENTRIES = ("emptied", "cut to half", "cut by a byte")


def _is_first(log: Path) -> bool:
    logs = sorted(log.parent.glob("*.log"))
    return bool(batch_positions(log.read_bytes())) and log == logs[0] and len(logs) > 1
