"""The verification of many partitions side by side, with one report of the progress.

The outcomes are in the order of the plans, whichever partition is read first.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Final

from txn.identifiers import TopicPartition
from txn.inspect.layout import StopState, partition_of
from txn.inspect.look import PartitionLook
from txn.inspect.metadata_log import verify_metadata_snapshot
from txn.inspect.outcome import Outcome, Surroundings

WORKERS_MAX: Final = 8


Report = Callable[[int, int], None]
"""A call with the bytes that were read, and the bytes of all logs."""


Ends = dict[TopicPartition, tuple[int, int]]
"""By partition: base offset of the first segment, and the offset after the last batch."""


Plan = tuple[Path, Surroundings]
"""A partition's directory, and the facts known of it."""


def verify_partitions(
    plans: Sequence[Plan], state: StopState, report: Report
) -> tuple[Outcome, Ends]:
    """Verify partitions and metadata snapshots; return the range of each log too."""
    total = sum(_log_bytes(directory) for directory, _ in plans)
    done = 0

    def progress(read_bytes: int) -> None:
        nonlocal done
        done += read_bytes
        report(min(done, total), total)

    whole, ends = Outcome(state=state), Ends()
    with ThreadPoolExecutor(min(os.cpu_count() or 1, WORKERS_MAX)) as pool:
        looks = pool.map(lambda plan: _look(plan[0], plan[1], progress), plans)
        for (directory, _), look in zip(plans, looks, strict=True):
            whole.add_all(look.outcome)
            for name in sorted(look.metadata_snapshots):
                verify_metadata_snapshot(directory / name, whole)
            partition = partition_of(directory)
            if partition is not None and look.ends is not None:
                ends[partition] = look.ends
    return whole, ends


def _log_bytes(directory: Path) -> int:
    size = 0
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.endswith(".log"):
                    size += entry.stat().st_size
    return size


def _look(
    directory: Path, surroundings: Surroundings, progress: Callable[[int], None]
) -> PartitionLook:
    """Verify a partition; beside a broker only findings of two looks count."""
    look = PartitionLook(directory, surroundings, progress)
    findings = look.outcome.findings
    if findings and surroundings.state is StopState.IN_USE:
        again = PartitionLook(directory, surroundings, lambda _bytes: None).outcome.findings
        look.outcome.findings = [finding for finding in findings if finding in again]
        if len(look.outcome.findings) < len(findings):
            look.outcome.note(directory, "its files changed while they were looked at")
    return look
