"""A producer id for a request: it waits until a block of ids is allocated."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar, TypeVarTuple

from txn.broker.host import Host
from txn.broker.producer_id_manager import NoProducerIdError, ProducerIdManager
from txn.broker.transactions.partitions import TransactionPartitions
from txn.broker.transactions.timers import Timers
from txn.coordinator.operations import Request, Until
from txn.errors import StorageError
from txn.identifiers import NO_PRODUCER, ProducerIdAndEpoch
from txn.wire.error_codes import ErrorCode

D = TypeVar("D")


Arguments = TypeVarTuple("Arguments")


class InitProducerIdResult(NamedTuple):
    """The producer id and epoch to use from now on; none with an error code.

    `ongoing` is the identity of a transaction that was kept open for it (KIP-939).
    """

    producer: ProducerIdAndEpoch
    code: ErrorCode = ErrorCode.NONE
    ongoing: ProducerIdAndEpoch = NO_PRODUCER


def refused(code: ErrorCode) -> InitProducerIdResult:
    """The answer of a request that gives no identity."""
    return InitProducerIdResult(NO_PRODUCER, code)


class Services(NamedTuple):
    """The parts of the broker that the requests of all ids share."""

    host: Host
    producer_ids: ProducerIdManager
    partitions: TransactionPartitions
    timers: Timers


def new_producer(services: Services) -> Request[InitProducerIdResult]:
    """Give an id to a producer that is idempotent alone."""
    try:
        producer_id = yield from with_producer_id(services, services.producer_ids.generate)
    except StorageError:
        return refused(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return InitProducerIdResult(ProducerIdAndEpoch(producer_id, 0))


def with_producer_id(
    services: Services, decide_it: Callable[[*Arguments], D], *arguments: *Arguments
) -> Request[D]:
    """Return a decision that may take a new producer id, once there is one.

    Nothing else is decided for the key meanwhile. Raises StorageError: none can be allocated.
    """
    while True:
        try:
            return decide_it(*arguments)
        except NoProducerIdError:
            yield Until(services.producer_ids.call_when_ready)
