"""DescribeTransactions, ListTransactions, DescribeProducers and WriteTxnMarkers."""

from collections.abc import Sequence
from typing import NamedTuple

from txn.wire.error_codes import ErrorCode
from txn.wire.requests import request_body


@request_body
class DescribeTransactionsRequest:
    """Asks for the state of transactional ids."""

    transactional_ids: tuple[str, ...]


class TransactionTopic(NamedTuple):
    """Partitions of one topic that are part of a transaction."""

    topic: str
    partitions: Sequence[int]


class DescribedTransaction(NamedTuple):
    """The state of one transactional id."""

    error_code: ErrorCode
    transactional_id: str
    transaction_state: str
    transaction_timeout_ms: int
    transaction_start_time_ms: int
    producer_id: int
    producer_epoch: int
    topics: Sequence[TransactionTopic]


class DescribeTransactionsResponse(NamedTuple):
    """States by transactional id."""

    transaction_states: Sequence[DescribedTransaction]


@request_body
class ListTransactionsRequest:
    """Asks for the transactional ids that pass all filters."""

    state_filters: tuple[str, ...]
    producer_id_filters: tuple[int, ...]
    duration_filter: int = -1
    transactional_id_pattern: str | None = None


class ListedTransaction(NamedTuple):
    """One transactional id."""

    transactional_id: str
    producer_id: int
    transaction_state: str


class ListTransactionsResponse(NamedTuple):
    """Transactional ids, and the names of states that are unknown."""

    error_code: ErrorCode
    unknown_state_filters: Sequence[str]
    transaction_states: Sequence[ListedTransaction]


@request_body
class DescribeProducersTopic:
    """Partitions of one topic."""

    name: str
    partition_indexes: tuple[int, ...]


@request_body
class DescribeProducersRequest:
    """Asks for the producers that partitions know."""

    topics: tuple[DescribeProducersTopic, ...]


class ProducerEntry(NamedTuple):
    """The state of one producer in one partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: int
    coordinator_epoch: int
    current_txn_start_offset: int


class ProducersOfPartition(NamedTuple):
    """The producers of one partition."""

    partition_index: int
    error_code: ErrorCode
    error_message: str | None
    active_producers: Sequence[ProducerEntry]


class ProducersOfTopic(NamedTuple):
    """The producers of one topic's partitions."""

    name: str
    partitions: Sequence[ProducersOfPartition]


class DescribeProducersResponse(NamedTuple):
    """Producers by topic."""

    topics: Sequence[ProducersOfTopic]


@request_body
class WritableTxnMarkerTopic:
    """Partitions of one topic."""

    name: str
    partition_indexes: tuple[int, ...]


@request_body
class WritableTxnMarker:
    """A producer, the end of its transaction, and the partitions to write a marker into."""

    producer_id: int
    producer_epoch: int
    transaction_result: bool
    topics: tuple[WritableTxnMarkerTopic, ...]
    coordinator_epoch: int
    transaction_version: int = 0


@request_body
class WriteTxnMarkersRequest:
    """Ends transactions in partitions."""

    markers: tuple[WritableTxnMarker, ...]


class WrittenMarker(NamedTuple):
    """The result for one partition."""

    partition_index: int
    error_code: ErrorCode


class WrittenMarkersOfTopic(NamedTuple):
    """The results for one topic."""

    name: str
    partitions: Sequence[WrittenMarker]


class WrittenMarkers(NamedTuple):
    """The results for one producer."""

    producer_id: int
    topics: Sequence[WrittenMarkersOfTopic]


class WriteTxnMarkersResponse(NamedTuple):
    """Results by producer."""

    markers: Sequence[WrittenMarkers]
