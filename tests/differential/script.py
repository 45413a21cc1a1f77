"""Kafka's transactional requests, each in one line, for scripts and generated histories.

`Talk` says them to a `Pair`. A version left out is the newest; a field that a version lacks is not
sent. Answers are txn's, which the pair has compared with Kafka's.
"""

import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from differential.batches import BatchSpec, transactional
from differential.names import Name
from differential.pair import PARTITIONS, Pair
from harnesses.peers.jars import CONTROL, NODE_4_2

NEWEST: Final = {
    "Produce": 13,
    "Fetch": 18,
    "ListOffsets": 11,
    "OffsetForLeaderEpoch": 4,
    "OffsetCommit": 10,
    "OffsetFetch": 10,
    "FindCoordinator": 6,
    "ApiVersions": 5,
    "DeleteRecords": 2,
    "InitProducerId": 5,
    "AddPartitionsToTxn": 3,
    "AddOffsetsToTxn": 4,
    "EndTxn": 5,
    "WriteTxnMarkers": 2,
    "TxnOffsetCommit": 6,
    "DescribeProducers": 0,
    "DescribeTransactions": 0,
    "ListTransactions": 2,
}
if CONTROL is NODE_4_2:
    NEWEST.update(ApiVersions=4, TxnOffsetCommit=5)
OLDEST: Final = {"Produce": 3, "Fetch": 4, "ListOffsets": 1, "OffsetCommit": 2, "OffsetFetch": 1}
OLDEST_OF_THE_REST: Final = {"WriteTxnMarkers": 1, "OffsetForLeaderEpoch": 2}

COMMIT, ABORT = True, False
NOBODY: Final = (-1, -1)
TIMEOUT_MS: Final = 60_000
TOPIC_ID: Final = Name("topic id", 1)
STRANGE_TOPIC_ID: Final = b"\x07" * 16


def versions(api: str) -> range:
    """Every version that the control announces, but those between brokers."""
    oldest = OLDEST.get(api, OLDEST_OF_THE_REST.get(api, 0))
    return range(oldest, NEWEST[api] + 1)


@dataclass(slots=True)
class ScriptProducer:
    """A producer's state; a script changes it as a client would, or as it likes."""

    transactional_id: str
    producer_id: Any
    producer_epoch: int

    def at(self, producer_epoch: int) -> "ScriptProducer":
        """The same producer id with another epoch."""
        return ScriptProducer(self.transactional_id, self.producer_id, producer_epoch)

    @property
    def identity(self) -> tuple[Any, int]:
        return self.producer_id, self.producer_epoch


class Talk:
    """Says requests to a pair; its topic is `pair.own("t")` with two partitions."""

    def __init__(self, pair: Pair, topic: str) -> None:
        self.pair = pair
        self.topic = topic
        self.group = pair.own("g")

    # ------------------------------------------------------------ a transaction's life

    def init(
        self,
        transactional_id: str | None,
        version: int = 5,
        *,
        shown: tuple[Any, int] = NOBODY,
        timeout_ms: int = TIMEOUT_MS,
        **more: Any,
    ) -> ScriptProducer:
        answer = self.pair.ask(
            "InitProducerId",
            version,
            transactional_id=transactional_id,
            transaction_timeout=timeout_ms,
            producer_id=shown[0],
            producer_epoch=shown[1],
            **more,
        )
        return ScriptProducer(
            transactional_id or "", answer.get("producer_id", -1), answer.get("producer_epoch", -1)
        )

    def add_partitions(
        self,
        producer: ScriptProducer,
        partitions: Mapping[str, Sequence[int]] | Sequence[int] = (0,),
        version: int = 3,
    ) -> dict[str, Any]:
        return self.pair.ask(
            "AddPartitionsToTxn",
            version,
            v3_and_below_transactional_id=producer.transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch,
            v3_and_below_topics=self._topics(partitions, "partitions"),
        )

    def add_batched(
        self,
        producers: Iterable[
            tuple[ScriptProducer, Mapping[str, Sequence[int]] | Sequence[int], bool]
        ],
        version: int = 5,
    ) -> dict[str, Any]:
        """AddPartitionsToTxn 4 and 5: (producer, partitions, whether only to verify) of several."""
        return self.pair.ask(
            "AddPartitionsToTxn",
            version,
            transactions=[
                {
                    "transactional_id": producer.transactional_id,
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "verify_only": verify_only,
                    "topics": self._topics(partitions, "partitions"),
                }
                for producer, partitions, verify_only in producers
            ],
        )

    def add_offsets(
        self, producer: ScriptProducer, version: int = 4, *, group: str | None = None
    ) -> dict[str, Any]:
        return self.pair.ask(
            "AddOffsetsToTxn",
            version,
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            group_id=self.group if group is None else group,
        )

    def commit_offsets(
        self,
        producer: ScriptProducer,
        offsets: Mapping[int, int],
        version: int = 5,
        *,
        group: str | None = None,
        generation: int = -1,
        member: str = "",
        instance: str | None = None,
        topic: str | None = None,
    ) -> dict[str, Any]:
        """TxnOffsetCommit."""
        return self.pair.ask(
            "TxnOffsetCommit",
            version,
            transactional_id=producer.transactional_id,
            group_id=self.group if group is None else group,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            generation_id=generation,
            member_id=member,
            group_instance_id=instance,
            topics=[
                {
                    "name": topic or self.topic,
                    "topic_id": TOPIC_ID if topic is None else STRANGE_TOPIC_ID,
                    "partitions": [
                        {
                            "partition_index": index,
                            "committed_offset": offset,
                            "committed_metadata": "m",
                        }
                        for index, offset in offsets.items()
                    ],
                }
            ],
        )

    def end(self, producer: ScriptProducer, committed: bool, version: int = 5) -> dict[str, Any]:
        """EndTxn; the producer takes over the answer of a version 5."""
        answer = self.pair.ask(
            "EndTxn",
            version,
            transactional_id=producer.transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            committed=committed,
        )
        self.pair.settle(producer.transactional_id)
        if answer.get("error_code") == "none" and version >= 5:
            producer.producer_id = answer["producer_id"]
            producer.producer_epoch = answer["producer_epoch"]
        return answer

    def write_markers(
        self,
        producer: ScriptProducer,
        committed: bool,
        partitions: Mapping[str, Sequence[int]] | Sequence[int] = (0,),
        version: int = 2,
        *,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> dict[str, Any]:
        return self.pair.ask(
            "WriteTxnMarkers",
            version,
            markers=[
                {
                    "producer_id": producer.producer_id,
                    "producer_epoch": producer.producer_epoch,
                    "transaction_result": committed,
                    "topics": self._topics(partitions, "partition_indexes"),
                    "coordinator_epoch": coordinator_epoch,
                    "transaction_version": transaction_version,
                }
            ],
        )

    # ------------------------------------------------------------ records

    def produce(
        self,
        batches: Mapping[int, BatchSpec | tuple[BatchSpec, ...] | bytes | None],
        transactional_id: str | None = None,
        version: int = 13,
        *,
        acks: int = -1,
        topic: str | None = None,
        topic_id: Any = TOPIC_ID,
    ) -> dict[str, Any]:
        """Produce to partitions of the script's topic, or of another one."""
        return self.pair.ask(
            "Produce",
            version,
            transactional_id=transactional_id,
            acks=acks,
            timeout=5_000,
            topic_data=[
                {
                    "name": topic or self.topic,
                    "topic_id": topic_id,
                    "partition_data": [
                        {"index": index, "records": records} for index, records in batches.items()
                    ],
                }
            ],
        )

    def send(
        self,
        producer: ScriptProducer,
        sequence: int,
        partition: int = 0,
        version: int = 13,
        **given: Any,
    ) -> dict[str, Any]:
        """One transactional batch of a producer, as a sound client sends it."""
        batch = transactional(producer.producer_id, producer.producer_epoch, sequence, **given)
        return self.produce({partition: batch}, producer.transactional_id, version)

    def fetch(
        self,
        offsets: Mapping[int, int],
        version: int = 18,
        *,
        isolation: int = 1,
        max_bytes: int = 1 << 20,
        partition_max_bytes: int = 1 << 20,
        min_bytes: int = 0,
        max_wait_ms: int = 0,
        session: tuple[Any, int] = (0, -1),
        leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        topic: str | None = None,
        topic_id: Any = TOPIC_ID,
        forgotten: Sequence[int] = (),
    ) -> dict[str, Any]:
        where = {"topic": topic or self.topic, "topic_id": topic_id}
        return self.pair.ask(
            "Fetch",
            version,
            replica_id=-1,
            max_wait=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_id=session[0],
            session_epoch=session[1],
            topics=[
                where
                | {
                    "partitions": [
                        {
                            "partition": index,
                            "fetch_offset": offset,
                            "partition_max_bytes": partition_max_bytes,
                            "current_leader_epoch": leader_epoch,
                            "last_fetched_epoch": last_fetched_epoch,
                        }
                        for index, offset in offsets.items()
                    ]
                }
            ]
            if offsets
            else [],
            forgotten_topics_data=[where | {"partitions": list(forgotten)}] if forgotten else [],
            rack_id="",
        )

    def list_offsets(
        self,
        timestamps: Mapping[int, int],
        version: int = 11,
        *,
        isolation: int = 1,
        leader_epoch: int = -1,
        topic: str | None = None,
    ) -> dict[str, Any]:
        return self.pair.ask(
            "ListOffsets",
            version,
            replica_id=-1,
            isolation_level=isolation,
            timeout=5_000,
            topics=[
                {
                    "name": topic or self.topic,
                    "partitions": [
                        {
                            "partition_index": index,
                            "timestamp": timestamp,
                            "current_leader_epoch": leader_epoch,
                        }
                        for index, timestamp in timestamps.items()
                    ],
                }
            ],
        )

    def delete_records(self, offsets: Mapping[int, int], version: int = 2) -> dict[str, Any]:
        return self.pair.ask(
            "DeleteRecords",
            version,
            timeout=5_000,
            topics=[
                {
                    "name": self.topic,
                    "partitions": [
                        {"partition_index": index, "offset": offset}
                        for index, offset in offsets.items()
                    ],
                }
            ],
        )

    # ------------------------------------------------------------ groups

    def plain_offsets(self, offsets: Mapping[int, int], version: int = 9) -> dict[str, Any]:
        """OffsetCommit without a transaction and without a member."""
        return self.pair.ask(
            "OffsetCommit",
            version,
            group_id=self.group,
            generation_id_or_member_epoch=-1,
            generation_id=-1,
            member_id="",
            group_instance_id=None,
            retention_time=datetime.timedelta(milliseconds=-1),
            topics=[
                {
                    "name": self.topic,
                    "topic_id": TOPIC_ID,
                    "partitions": [
                        {
                            "partition_index": index,
                            "committed_offset": offset,
                            "committed_metadata": "plain",
                        }
                        for index, offset in offsets.items()
                    ],
                }
            ],
        )

    def fetch_offsets(
        self,
        version: int = 10,
        *,
        stable: bool = True,
        partitions: Sequence[int] = (0, 1),
        group: str | None = None,
    ) -> dict[str, Any]:
        """OffsetFetch."""
        group_id = self.group if group is None else group
        where = {
            "name": self.topic,
            "topic_id": TOPIC_ID,
            "partition_indexes": list(partitions),
        }
        return self.pair.ask(
            "OffsetFetch",
            version,
            group_id=group_id,
            topics=[where],
            groups=[
                {"group_id": group_id, "member_id": None, "member_epoch": -1, "topics": [where]}
            ],
            require_stable=stable,
        )

    def find_coordinator(self, keys: Sequence[str], kind: int, version: int) -> dict[str, Any]:
        return self.pair.ask(
            "FindCoordinator", version, key=keys[0], key_type=kind, coordinator_keys=list(keys)
        )

    # ------------------------------------------------------------ what there is

    def describe(self, *transactional_ids: str) -> dict[str, Any]:
        """DescribeTransactions."""
        return self.pair.ask("DescribeTransactions", 0, transactional_ids=list(transactional_ids))

    def describe_producers(
        self, partitions: Mapping[str, Sequence[int]] | Sequence[int] = (0, 1)
    ) -> dict[str, Any]:
        return self.pair.ask(
            "DescribeProducers", 0, topics=self._topics(partitions, "partition_indexes")
        )

    def list_transactions(
        self,
        producers: Sequence[Any],
        version: int = 2,
        *,
        states: Sequence[str] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> dict[str, Any]:
        return self.pair.ask(
            "ListTransactions",
            version,
            state_filters=list(states),
            producer_id_filters=list(producers),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

    def until_aborted(self, transactional_id: str) -> None:
        """Wait until both coordinators have aborted a transaction for its time."""
        self.pair.until(lambda side: self.pair.state_on(side, transactional_id) == "CompleteAbort")

    def look(self, start: Sequence[int] = (0, 0)) -> None:
        """Compare the readers' view of the topic, its producers and the group's offsets."""
        for isolation in (0, 1):
            self.fetch(dict(enumerate(start)), isolation=isolation)
            self.list_offsets(dict.fromkeys(range(PARTITIONS), -1), isolation=isolation)
        self.describe_producers()
        self.fetch_offsets(stable=True)
        self.fetch_offsets(stable=False)

    def _topics(
        self, partitions: Mapping[str, Sequence[int]] | Sequence[int], field: str
    ) -> list[dict[str, Any]]:
        named = partitions if isinstance(partitions, Mapping) else {self.topic: partitions}
        return [{"name": name, field: list(indexes)} for name, indexes in named.items()]
