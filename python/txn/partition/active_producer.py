"""A producer of a partition, as DescribeProducers shows it (KIP-664)."""

from typing import NamedTuple, Self

from txn.partition.producer_state_entry import ProducerStateEntry


class ActiveProducer(NamedTuple):
    """The DescribeProducers entry of one producer id; -1 where there is no value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    current_txn_start_offset: int

    @classmethod
    def of(cls, producer_id: int, state: ProducerStateEntry) -> Self:
        """The entry of a producer in this state."""
        return cls(
            producer_id,
            state.producer_epoch,
            state.last_sequence,
            state.last_timestamp_ms,
            state.coordinator_epoch,
            state.txn_first_offset,
        )
