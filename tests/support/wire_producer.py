"""A transactional producer with scripted requests, over a bare connection.

For requests of no real client: librdkafka has no version 2 of transactions and no two-phase commit.
"""

from typing import Any

from support.entities import entity_builder
from support.wire_client import RawConnection, request
from txn import _core

PRODUCE, INIT, END, TXN_OFFSET_COMMIT = 0, 22, 26, 28
TV1_PRODUCE, TV2_PRODUCE = 11, 12
TIMEOUT_MS = 60_000

Identity = tuple[int, int]
"""Producer id and epoch."""


def identity(answer: Any) -> Identity:
    """The identity with which a producer goes on after its InitProducerId or EndTxn."""
    assert int(answer.error_code) == 0, answer
    return answer.producer_id, answer.producer_epoch


class WireProducer(RawConnection):
    """A transactional producer on a connection of its own; answers are as the broker sent them."""

    def __init__(self, servers: str, transactional_id: str = "pay") -> None:
        super().__init__(servers)
        self.transactional_id = transactional_id

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        return self.call(entity_builder(request(key, version))(fields))

    def start(
        self,
        *,
        keep: bool = False,
        two_phase: bool = True,
        timeout_ms: int = TIMEOUT_MS,
        shown: Identity = (-1, -1),
    ) -> Any:
        return self.ask(
            INIT,
            6 if two_phase or keep else 5,
            transactional_id=self.transactional_id,
            transaction_timeout=timeout_ms,
            producer_id=shown[0],
            producer_epoch=shown[1],
            enable2_pc=two_phase,
            keep_prepared_txn=keep,
        )

    def produce(
        self,
        producer: Identity,
        sequence: int,
        value: bytes,
        version: int = TV2_PRODUCE,
        *,
        topic: str = "orders",
    ) -> int:
        """Write one record in the transaction, to partition 0; return the error code."""
        batch = _core.encode_batch([(None, value)], 1_700_000_000_000, *producer, sequence, True)
        answer = self.ask(
            PRODUCE,
            version,
            transactional_id=self.transactional_id,
            acks=-1,
            timeout=1_000,
            topic_data=[{"name": topic, "partition_data": [{"index": 0, "records": batch}]}],
        )
        return int(answer.responses[0].partition_responses[0].error_code)

    def commit_offset(
        self, producer: Identity, group: str, topic: str, offset: int, *, version: int = 5
    ) -> int:
        """Commit an offset of partition 0 in the transaction; return the error code."""
        partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = self.ask(
            TXN_OFFSET_COMMIT,
            version,
            transactional_id=self.transactional_id,
            group_id=group,
            producer_id=producer[0],
            producer_epoch=producer[1],
            topics=[{"name": topic, "partitions": [partition]}],
        )
        return int(answer.topics[0].partitions[0].error_code)

    def end(self, producer: Identity, *, committed: bool = True, version: int = 5) -> Any:
        return self.ask(
            END,
            version,
            transactional_id=self.transactional_id,
            producer_id=producer[0],
            producer_epoch=producer[1],
            committed=committed,
        )
