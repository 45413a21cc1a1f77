"""The port that writes the marker of a transaction to the partitions it wrote to.

Invariant: a marker is sent only for a decision that is as durable as promised. The caller keeps the
partitions that refused the marker, and sends again until none is left. A marker that a partition
has already ends nothing there, so sending twice is harmless.

All partitions are local today. On a cluster a sender groups them by their leaders. It then also has
to report how far each log is synced; today the coordinator reads that from its own node's logs.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, Protocol

from txn.errors import StorageError
from txn.identifiers import TopicPartition
from txn.logs import log
from txn.metadata.image import OFFSETS_TOPIC
from txn.storage.base import Marker, PartitionLog
from txn.wire.error_codes import ErrorCode

INVALID_PRODUCER_EPOCH: Final = int(ErrorCode.INVALID_PRODUCER_EPOCH)

NONE_HELD: Final[Mapping[TopicPartition, StorageError]] = MappingProxyType({})

FindPartition = Callable[[str, int], PartitionLog | None]
"""Finds a partition by topic and number; None: it was deleted. Raises StorageError."""

MarkerListener = Callable[[int, int, bool], object]
"""Told (partition of `__consumer_offsets`, producer id, is commit) when a marker is in it."""


RefusalListener = Callable[[int, int], object]
"""Told (partition of `__consumer_offsets`, producer id) when the marker of a commit is refused."""


class MarkersSent(NamedTuple):
    """The result of sending a marker: partition → its offset there, or the refusal."""

    offsets: Mapping[TopicPartition, int]
    refused: Mapping[TopicPartition, StorageError]


class MarkerSender(Protocol):
    """Writes a transaction's markers."""

    def send(
        self,
        partitions: Iterable[TopicPartition],
        marker: Marker,
        held: Mapping[TopicPartition, StorageError] = NONE_HELD,
    ) -> MarkersSent:
        """Write a marker to partitions, one after the other. A deleted one needs none.

        Those in `held` get none and count as refused.
        """
        ...


class LocalMarkerSender:
    """A `MarkerSender` to partitions of this node.

    Args:
        find: Finds them.
        on_offsets_marker: Told of each marker among committed offsets, which count from then on.
        on_offsets_refusal: Told of each commit that has to wait for its marker there.
    """

    def __init__(
        self,
        find: FindPartition,
        on_offsets_marker: MarkerListener,
        on_offsets_refusal: RefusalListener,
    ) -> None:
        self._find = find
        self._on_offsets_marker = on_offsets_marker
        self._on_offsets_refusal = on_offsets_refusal

    def send(
        self,
        partitions: Iterable[TopicPartition],
        marker: Marker,
        held: Mapping[TopicPartition, StorageError] = NONE_HELD,
    ) -> MarkersSent:
        """See `MarkerSender`."""
        offsets: dict[TopicPartition, int] = {}
        refused: dict[TopicPartition, StorageError] = {}
        for partition in partitions:
            topic, index = partition
            try:
                if partition in held:
                    raise held[partition]
                store = self._find(topic, index)
                if store is None:  # the topic was deleted, and its readers with it
                    continue
                offset = _mark(store, marker)
                if topic == OFFSETS_TOPIC:
                    self._on_offsets_marker(index, marker.producer_id, marker.is_commit)
            except StorageError as error:
                refused[partition] = error
                if topic == OFFSETS_TOPIC and marker.is_commit and not _is_fenced(error):
                    self._on_offsets_refusal(index, marker.producer_id)
            else:
                offsets[partition] = offset
        return MarkersSent(offsets, refused)


def _mark(store: PartitionLog, marker: Marker) -> int:
    try:
        return store.append_marker(marker)
    except StorageError as error:
        if _is_fenced(error):  # it is not sent again
            store.producer_state.unblock_txn(marker.producer_id)
        raise


def to_be_retried(
    refused: Mapping[TopicPartition, StorageError], marker: Marker
) -> dict[TopicPartition, StorageError]:
    """The refusals of a marker that has to be sent again.

    A partition that has seen a later epoch holds nothing of this one open.
    """
    for partition, error in refused.items():
        if _is_fenced(error):
            log.error(
                "txn.marker_fenced",
                partition=f"{partition[0]}-{partition[1]}",
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
            )
    return {partition: error for partition, error in refused.items() if not _is_fenced(error)}


def _is_fenced(error: StorageError) -> bool:
    return error.code == INVALID_PRODUCER_EPOCH
