"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""

from collections.abc import Sequence
from dataclasses import field
from typing import NamedTuple

from txn.identifiers import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from txn.wire.error_codes import ErrorCode
from txn.wire.requests import called, request_body


@request_body
class InitProducerIdRequest:
    """Asks for a producer id and epoch, or for the next epoch of those it names."""

    transactional_id: str | None
    transaction_timeout_ms: int
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    enable_two_phase_commit: bool = field(default=False, metadata=called("enable2_pc"))
    keep_prepared_txn: bool = False


class InitProducerIdResponse(NamedTuple):
    """A producer id and epoch; those of a prepared transaction that was kept."""

    error_code: ErrorCode
    producer_id: int
    producer_epoch: int
    ongoing_txn_producer_id: int = NO_PRODUCER_ID
    ongoing_txn_producer_epoch: int = NO_PRODUCER_EPOCH


@request_body
class AddPartitionsToTxnTopic:
    """Partitions of one topic."""

    name: str
    partitions: tuple[int, ...]


@request_body
class AddPartitionsToTxnTransaction:
    """A transaction and the partitions that join it, or that are verified."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    verify_only: bool = False
    topics: tuple[AddPartitionsToTxnTopic, ...]


@request_body
class AddPartitionsToTxnRequest:
    """Joins partitions to one transaction; from version 4 on to each of `transactions`."""

    transactional_id: str = field(default="", metadata=called("v3_and_below_transactional_id"))
    producer_id: int = field(default=NO_PRODUCER_ID, metadata=called("v3_and_below_producer_id"))
    producer_epoch: int = field(
        default=NO_PRODUCER_EPOCH, metadata=called("v3_and_below_producer_epoch")
    )
    topics: tuple[AddPartitionsToTxnTopic, ...] = field(
        default=(), metadata=called("v3_and_below_topics")
    )
    transactions: tuple[AddPartitionsToTxnTransaction, ...] = ()


class AddedPartition(NamedTuple):
    """The result for one partition."""

    partition_index: int
    partition_error_code: ErrorCode


class AddedTopic(NamedTuple):
    """The results for one topic."""

    name: str
    results_by_partition: Sequence[AddedPartition]


class AddedToTransaction(NamedTuple):
    """The results for one transaction."""

    transactional_id: str
    topic_results: Sequence[AddedTopic]


class AddPartitionsToTxnResponse(NamedTuple):
    """Results by topic; from version 4 on by transaction."""

    results_by_topic_v3_and_below: Sequence[AddedTopic] = ()
    error_code: ErrorCode = ErrorCode.NONE
    results_by_transaction: Sequence[AddedToTransaction] = ()


@request_body
class AddOffsetsToTxnRequest:
    """Joins the partition of `__consumer_offsets` that keeps a group to a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    group_id: str


class AddOffsetsToTxnResponse(NamedTuple):
    """The result."""

    error_code: ErrorCode


@request_body
class EndTxnRequest:
    """Commits or aborts a transaction."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool


class EndTxnResponse(NamedTuple):
    """The result; from version 5 on the producer id and epoch of the next transaction."""

    error_code: ErrorCode
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
