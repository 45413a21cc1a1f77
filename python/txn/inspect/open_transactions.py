"""Compares open transactions of partitions with the records of the coordinator, as a start does.

Only a stopped directory is compared, because a broker at work changes both sides. A directory whose
metadata has no `__transaction_state` is only a part of one. After a power failure, or if the
storage has lost its cache, the next start ends transactions that the coordinator does not know.
Then such a transaction is a note and not a finding.
"""

import os
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from txn.coordinator.transaction.lost_cache import LostOffset, find_lost_offset, named_offsets
from txn.coordinator.transaction.open_transactions import (
    OpenTransaction,
    TopicIdOf,
    fault_of,
    owners_of,
    unexplained,
)
from txn.coordinator.transaction.records import TxnRecord, decode_key, decode_value
from txn.coordinator.transaction.states import Txn
from txn.inspect import segments
from txn.inspect.layout import StopState, list_partition
from txn.inspect.outcome import Outcome
from txn.metadata.image import TRANSACTIONS_TOPIC, Image
from txn.storage.directory import LOCK, LOCK_BYTES_MAX, Use
from txn.storage.plain_files import open_plain


class _Coordinator(NamedTuple):
    """The records of `__transaction_state`."""

    known: dict[str, Txn]
    """The newest state of each transactional id."""
    prepares: defaultdict[str, list[TxnRecord]]
    """The records of an id that name offsets."""
    unread: list[str]
    """The partitions that are damaged."""


def verify_open_transactions(
    root: Path,
    partitions: Sequence[Path],
    image: Image,
    outcome: Outcome,
    ends: Mapping[tuple[str, int], tuple[int, int]],
) -> None:
    """Find the partitions that hold a transaction open which no record explains.

    Args:
        root: The data directory.
        partitions: The directories of all its partitions.
        image: Its metadata.
        outcome: The partitions and their open transactions; new findings are added to it.
        ends: First and log end offset of each partition; none of those that are not looked at.
    """
    if not outcome.held_open or outcome.state is StopState.IN_USE:
        return
    logs = [path for path in partitions if path.name.startswith(f"{TRANSACTIONS_TOPIC}-")]
    if not logs and TRANSACTIONS_TOPIC not in image.topics:
        return
    damaged = {finding.path.parent for finding in outcome.findings if finding.path.suffix == ".log"}
    coordinator = _read_coordinator(logs, damaged)
    known, unread = coordinator.known, coordinator.unread
    power_failed = outcome.state is StopState.LEFT and was_left_in_another_boot(root)
    has_lost_cache = False
    if outcome.state is StopState.LEFT and not power_failed:
        sound = {place: each[1] for place, each in ends.items() if _at(root, place) not in damaged}
        lost = _find_lost_offset(root, coordinator, image, outcome.held_open, sound)
        if lost is not None:
            has_lost_cache = True
            outcome.note(
                root,
                f"the storage lost its cache: transactional id {lost.transactional_id!r} names "
                f"offset {lost.offset} of a log that ends at {lost.log_end_offset}. The next start "
                "counts as one after a power failure",
            )
    topic_id_of = _ids_of(image)
    for each, owner in unexplained(outcome.held_open, owners_of(known.items()), topic_id_of):
        path = _file_of(root, each)
        fault = fault_of(each, owner, topic_id_of)
        if owner is None and unread:
            outcome.note(path, f"{fault}. Its owner may be in {', '.join(unread)}: damaged")
        elif power_failed:
            outcome.note(path, f"{fault}. The power failed, so the next start ends it")
        elif has_lost_cache:
            outcome.note(path, f"{fault}. The storage lost its cache, so the next start ends it")
        else:
            outcome.find(path, None, fault)


def _find_lost_offset(
    root: Path,
    coordinator: _Coordinator,
    image: Image,
    held: Sequence[OpenTransaction],
    ends: Mapping[tuple[str, int], int],
) -> LostOffset | None:
    """Find the proof of a lost cache that the next start will find."""
    names = {topic.topic_id.bytes: topic.name for topic in image.topics.values()}

    def end_of(topic_id: bytes, partition: int) -> int | None:
        place = names.get(topic_id, ""), partition
        is_gone = place[0] in image.topics and not os.path.lexists(_at(root, place))
        return 0 if is_gone else ends.get(place)

    known = list(coordinator.known.items())
    return find_lost_offset(
        known,
        lambda: known,
        held,
        named_by=lambda transactional_id: named_offsets(coordinator.prepares[transactional_id]),
        end_of=end_of,
        topic_id_of=_ids_of(image),
    )


def _ids_of(image: Image) -> TopicIdOf:
    ids = {name: topic.topic_id.bytes for name, topic in image.topics.items()}
    return ids.get


def _at(root: Path, place: tuple[str, int]) -> Path:
    return root / f"{place[0]}-{place[1]}"


def _read_coordinator(logs: Iterable[Path], damaged: Collection[Path]) -> _Coordinator:
    coordinator = _Coordinator({}, defaultdict(list), [])
    unread = coordinator.unread
    for directory in logs:
        files = list_partition(directory)
        try:
            for base_offset in files.segments:
                _read_segment(files.file(base_offset, ".log"), coordinator)
        except (OSError, ValueError, segments.UnreadableBatchError):
            unread.append(directory.name)  # the look at the partition says why
        else:
            if directory in damaged:
                unread.append(directory.name)
    unread.sort()
    return coordinator


def _read_segment(path: Path, coordinator: _Coordinator) -> None:
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
                coordinator.known.pop(transactional_id, None)
                continue
            txn = coordinator.known[transactional_id] = decode_value(record.value)
            if txn.last_offsets:
                coordinator.prepares[transactional_id].append((transactional_id, txn))


def _file_of(root: Path, held: OpenTransaction) -> Path:
    """The segment in which a transaction begins; the first one, if that was deleted."""
    topic, index = held.partition
    files = list_partition(root / f"{topic}-{index}")
    below = [base for base in files.segments if base <= held.first_offset]
    return files.file(below[-1] if below else files.segments[0], ".log")


def was_left_by_kafka(root: Path) -> bool:
    """Return True if a directory was last used by an Apache Kafka."""
    return _last_use(root).was_used_by_kafka_since(root)


def was_left_in_another_boot(root: Path) -> bool:
    """Return True if a directory was last used in another boot of the machine."""
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
