"""The port through which a partition asks if a transaction may write to it.

Invariant: a batch opens a transaction on a partition only after the coordinator of its
transactional id has recorded the partition. So the end of the transaction finds it.

`TransactionCoordinator` is the local implementation. On a cluster the leader of a partition asks
the coordinator's broker by AddPartitionsToTxn.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from txn.identifiers import ProducerIdAndEpoch, TopicPartition


class TransactionVerifier(Protocol):
    """Answers for the coordinator of a transactional id."""

    async def join(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        transaction_version: int,
        partitions: Sequence[TopicPartition],
    ) -> Mapping[TopicPartition, int]:
        """Make partitions part of a producer's transaction (version 2), or say if they are (1).

        Returns:
            Kafka's error code for each partition, 0 where it is part of the transaction.
        """
        ...

    def is_joined(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partition: TopicPartition
    ) -> bool:
        """Return True if a partition is part of the producer's open transaction in this moment."""
        ...
