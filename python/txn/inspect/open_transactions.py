"""Open transactions of partitions, held against the records of the coordinator, as a start does.

Asked of a stopped directory alone: beside a broker the two are never seen at the same moment.
A directory without `__transaction_state`, in its metadata too, is a part of one. After a power
failure the next start ends the transactions that the coordinator does not know, so that is a note.
"""

import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from txn.coordinator.transaction.open_transactions import (
    OpenTransaction,
    fault_of,
    owners_of,
    unexplained,
)
from txn.coordinator.transaction.records import decode_key, decode_value
from txn.coordinator.transaction.states import Txn
from txn.inspect import segments
from txn.inspect.layout import StopState, list_partition
from txn.inspect.outcome import Outcome
from txn.metadata.image import TRANSACTIONS_TOPIC, Image
from txn.storage.directory import LOCK, LOCK_BYTES_MAX, Use
from txn.storage.plain_files import open_plain


def verify_open_transactions(
    root: Path, partitions: Sequence[Path], image: Image, outcome: Outcome
) -> None:
    """Find the partitions that hold a transaction open which no record explains.

    Args:
        root: The data directory.
        partitions: The directories of all its partitions.
        image: Its metadata.
        outcome: The partitions and their open transactions; new findings are added to it.
    """
    if not outcome.held_open or outcome.state is StopState.IN_USE:
        return
    logs = [path for path in partitions if path.name.startswith(f"{TRANSACTIONS_TOPIC}-")]
    if not logs and TRANSACTIONS_TOPIC not in image.topics:
        return
    damaged = {finding.path.parent for finding in outcome.findings if finding.path.suffix == ".log"}
    known, unread = _read_coordinator(logs, damaged)
    power_failed = outcome.state is StopState.LEFT and was_left_in_another_boot(root)
    for each, owner in unexplained(outcome.held_open, owners_of(known.items())):
        path = _file_of(root, each)
        fault = fault_of(each, owner)
        if owner is None and unread:
            outcome.note(path, f"{fault}. Its owner may be in {', '.join(unread)}: damaged")
        elif power_failed:
            outcome.note(path, f"{fault}. The power failed, so the next start ends it")
        else:
            outcome.find(path, None, fault)


def _read_coordinator(
    logs: Iterable[Path], damaged: Collection[Path]
) -> tuple[dict[str, Txn], list[str]]:
    """The newest state of each transactional id, and the partitions that are damaged."""
    known: dict[str, Txn] = {}
    unread = []
    for directory in logs:
        files = list_partition(directory)
        try:
            for base_offset in files.segments:
                _read_segment(files.file(base_offset, ".log"), known)
        except (OSError, ValueError, segments.UnreadableBatchError):
            unread.append(directory.name)  # the look at the partition says why
        else:
            unread += [directory.name] if directory in damaged else []
    return known, sorted(unread)


def _read_segment(path: Path, known: dict[str, Txn]) -> None:
    """Fold a segment's sound records.

    Raises:
        OSError: the file cannot be read.
        UnreadableBatchError, ValueError: records cannot be decoded.
    """
    for batch in segments.walk(path):
        if isinstance(batch, segments.Damage) or batch.fault or batch.is_control:
            continue
        for record in segments.records_of(path, batch):
            transactional_id = decode_key(record.key or b"")
            if transactional_id is None:
                continue
            if record.value is None:
                known.pop(transactional_id, None)
            else:
                known[transactional_id] = decode_value(record.value)


def _file_of(root: Path, held: OpenTransaction) -> Path:
    """The segment in which a transaction begins; the first one, if that was deleted."""
    topic, index = held.partition
    files = list_partition(root / f"{topic}-{index}")
    below = [base for base in files.segments if base <= held.first_offset]
    return files.file(below[-1] if below else files.segments[0], ".log")


def was_left_by_kafka(root: Path) -> bool:
    """Say whether a directory was last used by an Apache Kafka."""
    return _last_use(root).is_not_the_last(root)


def was_left_in_another_boot(root: Path) -> bool:
    """Say whether a directory was last used in another boot of the machine."""
    try:
        return _last_use(root).was_in_another_boot()
    except OSError:
        return False


def _last_use(root: Path) -> Use:
    try:
        with open(open_plain(root / LOCK, os.O_RDONLY), "rb") as file:
            return Use.decode(file.read(LOCK_BYTES_MAX))
    except OSError:
        return Use.decode(b"")
