"""Comparison of the coordinator's records with the open transactions of partitions.

A record or marker that was acknowledged is in its log, and in this order. The partition joins the
transaction, its first batch, Prepare, the markers, Complete. So whenever the process is killed, an
open transaction of a partition is one of these:

    Ongoing    of this producer id and epoch, with this partition
    Prepare    of this producer id, with this partition: its marker is still to come. It begins at
               or before the offset that the Prepare names there

It also begins behind each marker of its producer that a record carries, because that marker was in
the log. Anything else says that a marker or a record of `__transaction_state` is gone. After a
power failure that is expected (`broker.hanging_transactions`); otherwise it is damage. Serving it
would show an aborted transaction as committed, or hide a committed one. A late write to a broker
before KIP-890 leaves the same state, which the error names as the other possibility.

Pure. Sources: KIP-98, KIP-664, KIP-890.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from txn.coordinator.transaction.decide import ended_as
from txn.coordinator.transaction.states import (
    COMPLETED,
    PREPARED,
    Txn,
    TxnState,
    UnsyncedMarker,
)
from txn.coordinator.transaction.unsynced import is_ended_by
from txn.identifiers import NO_PRODUCER_ID, ProducerIdAndEpoch, TopicPartition

TopicIdOf = Callable[[str], bytes | None]
"""Gives the id of a topic, as records have it; None if there is no such topic."""


class OpenTransaction(NamedTuple):
    """The open transaction of a partition."""

    partition: TopicPartition
    producer: ProducerIdAndEpoch
    first_offset: int


class Owner(NamedTuple):
    """A transactional id and its state."""

    transactional_id: str
    txn: Txn


def owners_of(known: Iterable[tuple[str, Txn]]) -> dict[int, Owner]:
    """Find the owner of each producer id, the one before an exhausted id included."""
    owners: dict[int, Owner] = {}
    previous: dict[int, Owner] = {}
    for transactional_id, txn in known:
        owner = Owner(transactional_id, txn)
        owners[txn.producer_id] = owner
        if txn.previous_producer_id != NO_PRODUCER_ID:
            previous[txn.previous_producer_id] = owner
    return previous | owners


def is_explained(held: OpenTransaction, owner: Owner | None, topic_id_of: TopicIdOf) -> bool:
    """Return True if the coordinator's record accounts for an open transaction."""
    if owner is None or held.partition not in owner.txn.partitions:
        return False
    txn = owner.txn
    if txn.producer_id != held.producer.producer_id:
        return False
    if lost_marker_of(held, owner, topic_id_of) is not None:
        return False
    if txn.state is TxnState.ONGOING:
        return txn.producer_epoch == held.producer.producer_epoch
    is_as_old = txn.producer_epoch >= held.producer.producer_epoch
    return txn.state in PREPARED and is_as_old and not _is_behind(held, txn, topic_id_of)


def lost_marker_of(
    held: OpenTransaction, owner: Owner | None, topic_id_of: TopicIdOf
) -> UnsyncedMarker | None:
    """Find the carried marker that ended a transaction which its partition holds open."""
    if owner is None or not owner.txn.unsynced_markers:
        return None
    topic, partition = held.partition
    place = topic_id_of(topic), partition
    for marker in owner.txn.unsynced_markers:
        is_there = (marker.topic_id, marker.partition) == place
        if is_there and is_ended_by(marker, held.producer, held.first_offset):
            return marker
    return None


def _is_behind(held: OpenTransaction, prepare: Txn, topic_id_of: TopicIdOf) -> bool:
    """True if an open transaction begins behind the records that a Prepare names."""
    topic, partition = held.partition
    place = topic_id_of(topic), partition
    return any(
        (last.topic_id, last.partition) == place and held.first_offset > last.offset
        for last in prepare.last_offsets
    )


def is_completed(held: OpenTransaction, owner: Owner | None) -> bool:
    """Return True if the coordinator has completed a transaction of this producer id and epoch."""
    if owner is None or owner.txn.state not in COMPLETED:
        return False
    return owner.txn.producer == held.producer or ended_as(owner.txn, held.producer)


def fault_of(held: OpenTransaction, owner: Owner | None, topic_id_of: TopicIdOf) -> str:
    """Return the contradiction to an open transaction that nothing explains."""
    producer_id, producer_epoch = held.producer
    contradiction = _contradiction(held, owner, topic_id_of)
    return (
        f"producer {producer_id} with epoch {producer_epoch} has a transaction open since offset "
        f"{held.first_offset}, but {contradiction}. Either a marker or a record "
        "of __transaction_state is lost; or, in a directory of Apache Kafka, a write came after "
        "its transaction had ended (before KIP-890)"
    )


def _contradiction(held: OpenTransaction, owner: Owner | None, topic_id_of: TopicIdOf) -> str:
    if owner is None:
        return "no transactional id in __transaction_state has this producer id"
    txn = owner.txn
    name = f"transactional id {owner.transactional_id!r}"
    if is_completed(held, owner):
        outcome = "COMMIT" if txn.state is TxnState.COMPLETE_COMMIT else "ABORT"
        return f"{name} completed it as {outcome} at {_time(txn.updated_ms)}"
    marker = lost_marker_of(held, owner, topic_id_of)
    if marker is not None:
        outcome = "COMMIT" if marker.is_commit else "ABORT"
        return f"{name} ended it by the {outcome} marker at offset {marker.offset}"
    where = "" if held.partition in txn.partitions else ", without this partition"
    return (
        f"{name} is in {txn.state.label} with producer {txn.producer_id} and epoch "
        f"{txn.producer_epoch} since {_time(txn.updated_ms)}{where}"
    )


def _time(time_ms: int) -> str:
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"


def unexplained(
    held: Iterable[OpenTransaction], owners: Mapping[int, Owner], topic_id_of: TopicIdOf
) -> list[tuple[OpenTransaction, Owner | None]]:
    """List the open transactions that nothing explains, each with the owner of its producer id."""
    with_owner = ((each, owners.get(each.producer.producer_id)) for each in held)
    return [
        (each, owner) for each, owner in with_owner if not is_explained(each, owner, topic_id_of)
    ]
