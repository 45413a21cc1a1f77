"""Facts from running brokers: txn's, or those of an Apache Kafka cluster.

    ListOffsets, both isolation levels    the last stable offset and the end of each log
    DescribeProducers                     open transactions of a partition, from its leader
    ListTransactions                      the users of a producer id, from every broker
    DescribeTransactions                  begin, timeout and partitions of a transaction
    Fetch                                 batches, markers, records of `__transaction_state`

The client and its host come from txn's broker alone, see `wire.transaction_descriptions`. Apache
Kafka shows a user only the topics and ids that user may see, and does not say that it hid any.

Sources: KIP-664, KIP-98, KIP-394; Kafka's message schemas.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final

from txn.clock import now_ms
from txn.cluster.brokers import OTHER_SOURCES, Fields, RemoteBroker
from txn.cluster.facts import (
    LastClient,
    LoggedBatch,
    OpenTransaction,
    Owner,
    PartitionOffsets,
    StateRecord,
    state_record,
)
from txn.cluster.fetched import FetchedPiece, fetched
from txn.cluster.group_answers import classic_group, consumer_group
from txn.cluster.groups import (
    DEAD,
    GroupFacts,
    ListedGroup,
)
from txn.cluster.routing import GROUP_KEY, RoutedCluster, require
from txn.coordinator.transaction.listing import STATES_BY_LABEL
from txn.coordinator.transaction.records import encode_key
from txn.errors import RejectedError
from txn.identifiers import TopicPartition
from txn.inspect.segments import SegmentRecord
from txn.metadata.image import TRANSACTIONS_TOPIC
from txn.security.client import PLAIN, SecuritySettings
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode
from txn.wire.hashing import coordinator_partition
from txn.wire.transaction_descriptions import (
    EXPLAIN_CLIENT_ID,
    TransactionDescription,
    decode_descriptions,
)

FETCH_BYTES: Final = 4 << 20
DESCRIBED_AT_ONCE: Final = 1_000

UNKNOWN_STATE: Final = "?"
"""The state of a group where the broker's ListGroups does not have it."""


READ_UNCOMMITTED, READ_COMMITTED = 0, 1
LATEST, EARLIEST = -1, -2


class ClusterSource(RoutedCluster):
    """A running cluster; a `facts.FactSource`.

    Args:
        servers: HOST:PORT[,HOST:PORT…] of some brokers.
        security: The way in.
        options: How a command names this cluster, for advice; None: by its servers.
        timeout_s: Limit of a connect, and of the wait for each answer.
        clock: Milliseconds since the epoch.
        wait: Waits for some seconds.
        advice: Ends the message about brokers that cannot be reached.
        client_id: The name that brokers note for its requests.

    Raises:
        ConfigError: `servers` has another form, or the files of `security` cannot be used.
        RetriableError: none of the bootstrap servers answers.
    """

    is_running = True
    left_out: Final[Mapping[TopicPartition, str]] = MappingProxyType({})

    def __init__(
        self,
        servers: str,
        *,
        security: SecuritySettings = PLAIN,
        options: str | None = None,
        timeout_s: float = 10.0,
        clock: Callable[[], int] = now_ms,
        wait: Callable[[float], object] = time.sleep,
        advice: str = OTHER_SOURCES,
        client_id: str = EXPLAIN_CLIENT_ID,
    ) -> None:
        self.options = options or f"--bootstrap {servers}"
        self._clock = clock
        super().__init__(
            servers,
            security=security,
            timeout_s=timeout_s,
            wait=wait,
            advice=advice,
            client_id=client_id,
        )

    def now_ms(self) -> int:
        """Milliseconds since the epoch, by this machine."""
        return self._clock()

    # ------------------------------------------------------------ partitions

    def ends(
        self, partitions: Collection[TopicPartition]
    ) -> Mapping[TopicPartition, PartitionOffsets]:
        """Where logs begin and end; a partition without a leader is left out."""
        starts = self._offsets(partitions, EARLIEST, READ_UNCOMMITTED)
        stable = self._offsets(partitions, LATEST, READ_COMMITTED)
        ends = self._offsets(partitions, LATEST, READ_UNCOMMITTED)
        known = starts.keys() & stable.keys() & ends.keys()
        return {p: PartitionOffsets(starts[p], stable[p], ends[p]) for p in sorted(known)}

    def at_start(self, held: OpenTransaction) -> None:
        """None: the last start has dealt with every power failure."""

    def unread(self, transactional_id: str | None = None) -> list[str]:
        """The partitions of `__transaction_state` that no broker can read.

        The coordinator that knows an id has read all of its records.
        """
        if transactional_id is not None:
            return []
        partitions = [
            (TRANSACTIONS_TOPIC, index) for index in self._topics.get(TRANSACTIONS_TOPIC, ())
        ]
        try:
            known = self.ends(partitions)
        except RejectedError:  # the user may not ask, but the coordinators that answer did read it
            return []
        return [f"{topic}-{index}" for topic, index in partitions if (topic, index) not in known]

    def offset_at(self, partition: TopicPartition, timestamp_ms: int) -> int | None:
        """The first offset with a record at least as young as a time; None without one."""
        offset = self._offsets([partition], timestamp_ms, READ_UNCOMMITTED).get(partition, -1)
        return offset if offset >= 0 else None

    def open_transactions(self, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
        """Open transactions of partitions, by partition and first offset."""
        answers = self._ask_leaders(
            ApiKey.DESCRIBE_PRODUCERS, range(1), partitions, _producers_wanted
        )
        opened = [
            OpenTransaction(
                partition,
                producer.producer_id,
                producer.producer_epoch,
                producer.current_txn_start_offset,
                producer.last_timestamp if producer.last_timestamp >= 0 else None,
                producer.coordinator_epoch,
            )
            for partition, answer in answers.items()
            for producer in answer.active_producers
            if producer.current_txn_start_offset >= 0
        ]
        return sorted(opened, key=lambda held: (held.partition, held.first_offset))

    def refused(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, str]:
        """The partitions whose open transactions the user may not see, and the reason of each."""
        refused: dict[TopicPartition, str] = {}
        self._ask_leaders(
            ApiKey.DESCRIBE_PRODUCERS, range(1), partitions, _producers_wanted, refused
        )
        return refused

    def batches(self, partition: TopicPartition, first_offset: int) -> Iterator[LoggedBatch]:
        """The batches of a log from the one with an offset on; control batches too.

        The range begins at the log's start where the transaction's first records were deleted.
        """
        start = self._offsets([partition], EARLIEST, READ_UNCOMMITTED).get(partition, 0)
        for piece in self._pieces(partition, max(first_offset, start)):
            yield from piece.batches

    def records(
        self, partition: TopicPartition, first_offset: int
    ) -> Iterator[tuple[LoggedBatch, list[SegmentRecord]]]:
        """The batches of a log from the one with an offset on, with their records."""
        start = self._offsets([partition], EARLIEST, READ_UNCOMMITTED).get(partition, 0)
        for piece in self._pieces(partition, max(first_offset, start)):
            for batch in piece.batches:
                yield batch, piece.records(batch)

    def _pieces(self, partition: TopicPartition, first_offset: int) -> Iterator[FetchedPiece]:
        next_offset = first_offset
        while True:
            answer = self._fetch(partition, next_offset)
            with fetched(bytes(answer.records or b"")) as piece:
                if not piece.batches:
                    return
                end_offset = piece.batches[-1].batch.last_offset + 1
                if end_offset <= next_offset:
                    topic, index = partition
                    raise RejectedError(
                        f"the leader of {topic}-{index} was asked for offset {next_offset} and "
                        f"sends batches before it. `txn log verify` looks at its files"
                    )
                next_offset = end_offset
                yield piece

    def aborted_at(self, partition: TopicPartition, offset: int) -> set[int]:
        """The producers with an aborted transaction around an offset below the last stable one."""
        # A Fetch names the aborted transactions that end at its offset or later. A broker sends one
        # batch even if it is larger than the limit.
        answer = self._fetch(partition, offset, max_bytes=1, isolation_level=READ_COMMITTED)
        return {
            each.producer_id
            for each in answer.aborted_transactions or ()
            if each.first_offset <= offset
        }

    def _fetch(
        self,
        partition: TopicPartition,
        offset: int,
        *,
        max_bytes: int = FETCH_BYTES,
        isolation_level: int = READ_UNCOMMITTED,
    ) -> Any:
        """The answer of the leader about one partition."""
        topic, index = partition
        wanted = {"partition": index, "fetch_offset": offset, "partition_max_bytes": max_bytes}
        request = {
            "max_wait": 0,
            "min_bytes": 0,
            "max_bytes": max_bytes,
            "isolation_level": isolation_level,
            "topics": ({"topic": topic, "partitions": (wanted,)},),
            "forgotten_topics_data": (),
        }

        def ask() -> Any:
            leader = self._leader(partition)
            answer = leader.call(ApiKey.FETCH, range(4, 12), request)
            with leader.reading(ApiKey.FETCH):
                ((found,),) = [topic.partitions for topic in answer.responses]
            return found

        return self._settled(ask, f"{topic}-{index}")

    # ------------------------------------------------------------ transactional ids

    def owners(self, producer_ids: Collection[int] | None = None) -> list[Owner]:
        """The transactional ids that use some producer ids; None: all of them."""
        owners = []
        for broker, ids in self._listed(producer_ids or ()):
            for start in range(0, len(ids), DESCRIBED_AT_ONCE):
                owners += self._described(broker, ids[start : start + DESCRIBED_AT_ONCE])
        return sorted(owners, key=lambda owner: owner.transactional_id)

    def transactional_ids(self) -> list[str]:
        """All transactional ids, sorted."""
        return sorted(each for _, ids in self._listed(()) for each in ids)

    def _listed(self, producer_ids: Collection[int]) -> Iterator[tuple[RemoteBroker, list[str]]]:
        """The transactional ids of each broker, by producer ids if there are any."""
        request = {
            "state_filters": (),
            "producer_id_filters": tuple(producer_ids),
            "duration_filter": -1,
        }
        for _, broker in sorted(self._nodes.items()):
            listing = self._settled(
                partial(broker.call, ApiKey.LIST_TRANSACTIONS, range(2), request), ""
            )
            yield broker, [each.transactional_id for each in listing.transaction_states]

    def owner(self, transactional_id: str) -> Owner | None:
        """One transactional id, None if it is not known."""
        broker = self.coordinator(transactional_id)
        described = self._described(broker, [transactional_id])
        return described[0] if described else None

    def history(self, transactional_id: str) -> list[StateRecord]:
        """Records of an id that `__transaction_state` still has, oldest first."""
        return self.histories([transactional_id])[transactional_id]

    def histories(
        self, transactional_ids: Collection[str], offsets_max: int | None = None
    ) -> dict[str, list[StateRecord]]:
        """The history of each id; each partition of `__transaction_state` is read once.

        Args:
            transactional_ids: The ids.
            offsets_max: The newest offsets of each partition to read; None: all.
        """
        found: dict[str, list[StateRecord]] = {each: [] for each in transactional_ids}
        count = len(self._topics.get(TRANSACTIONS_TOPIC, ()))
        if not count:
            return found
        keys: dict[TopicPartition, dict[bytes, str]] = {}
        for each in transactional_ids:
            partition = TRANSACTIONS_TOPIC, coordinator_partition(each, count)
            keys.setdefault(partition, {})[encode_key(each)] = each
        for partition, ends in self.ends(keys).items():
            start = ends.log_start_offset
            if offsets_max is not None:
                start = max(start, ends.end_offset - offsets_max)
            for piece in self._pieces(partition, start):
                for batch in piece.batches:
                    for record in () if batch.batch.is_control else piece.records(batch):
                        name = keys[partition].get(record.key or b"")
                        if name is not None:
                            found[name].append(state_record(partition[1], record))
        return found

    def _described(self, broker: RemoteBroker, transactional_ids: Sequence[str]) -> list[Owner]:
        request = {"transactional_ids": tuple(transactional_ids)}
        _, body = broker.call_raw(ApiKey.DESCRIBE_TRANSACTIONS, range(1), request)
        known = []
        with broker.reading(ApiKey.DESCRIBE_TRANSACTIONS):
            descriptions, extras = decode_descriptions(body)
            for each in descriptions:
                if each.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    continue
                require(each.code, f"transactional id {each.transactional_id!r}")
                known.append(_owner(each, extras.get(each.transactional_id, {})))
        return known

    # ------------------------------------------------------------ groups

    def groups(self) -> list[ListedGroup]:
        """Every group, by name."""
        request = {"states_filter": (), "types_filter": ()}
        listed = []
        for _, broker in sorted(self._nodes.items()):
            ask = partial(broker.call, ApiKey.LIST_GROUPS, range(6), request)
            listed += [
                ListedGroup(
                    group.group_id,
                    group.protocol_type,
                    getattr(group, "group_state", UNKNOWN_STATE),
                    getattr(group, "group_type", None) or None,
                )
                for group in self._settled(ask, "").groups
            ]
        return sorted(listed, key=lambda group: group.group_id)

    def group(self, group_id: str) -> GroupFacts:
        """A group, as its coordinator reports it; Dead if there is none."""
        request = {"groups": (group_id,), "include_authorized_operations": False}

        def ask() -> Any:
            broker = self._coordinator(GROUP_KEY, group_id, "group")
            answer = broker.call(ApiKey.DESCRIBE_GROUPS, range(6), request)
            with broker.reading(ApiKey.DESCRIBE_GROUPS):
                (described,) = answer.groups
            return described

        group = self._settled(ask, f"group {group_id!r}")
        if group.group_state == DEAD:  # to DescribeGroups
            found = self._consumer_group(group_id)
            if found is not None:
                return found
        return classic_group(group)

    def _consumer_group(self, group_id: str) -> GroupFacts | None:
        """A group of the consumer protocol (KIP-848); None: there is none, or no broker knows."""
        request = {"group_ids": (group_id,), "include_authorized_operations": False}

        def ask() -> Any:
            broker = self._coordinator(GROUP_KEY, group_id, "group")
            answer = broker.call(ApiKey.CONSUMER_GROUP_DESCRIBE, range(2), request)
            with broker.reading(ApiKey.CONSUMER_GROUP_DESCRIBE):
                (described,) = answer.groups
            return described

        try:
            group = self._settled(ask, f"group {group_id!r}")
        except RejectedError as error:
            if error.code not in (None, ErrorCode.GROUP_ID_NOT_FOUND):
                raise
            return None  # there is no such group, or a broker does not know the protocol
        return consumer_group(group)

    def committed_offsets(self, group_id: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed."""
        request = {"group_id": group_id, "topics": None, "require_stable": False}

        def ask() -> Any:
            broker = self._coordinator(GROUP_KEY, group_id, "group")
            return broker.call(ApiKey.OFFSET_FETCH, range(2, 8), request)

        answer = self._settled(ask, f"group {group_id!r}")
        return {
            (topic.name, partition.partition_index): int(partition.committed_offset)
            for topic in answer.topics
            for partition in topic.partitions
            if partition.error_code == ErrorCode.NONE and partition.committed_offset >= 0
        }

    def count_committed(self, partition: TopicPartition, start: int, end: int) -> int:
        """The committed records of `[start, end)`, by reading them."""
        return self._brokers.count_committed(*partition, start, end)

    def has_committed(self, partition: TopicPartition, start: int, end: int) -> bool:
        """Return True if read_committed gets a record of `[start, end)`; reads up to that."""
        return self._brokers.has_committed(*partition, start, end)

    def _offsets(
        self, partitions: Collection[TopicPartition], timestamp: int, isolation_level: int
    ) -> dict[TopicPartition, int]:
        def request_for(topics: Mapping[str, Sequence[int]]) -> Fields:
            return {
                "replica_id": -1,
                "isolation_level": isolation_level,
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": index, "timestamp": timestamp} for index in indexes
                        ],
                    }
                    for topic, indexes in topics.items()
                ],
            }

        answers = self._ask_leaders(ApiKey.LIST_OFFSETS, range(2, 7), partitions, request_for)
        return {partition: int(answer.offset) for partition, answer in answers.items()}


def _owner(described: TransactionDescription, extra: Mapping[str, Any]) -> Owner:
    client = None
    if "client_host" in extra:
        client = LastClient(
            extra["client_id"],
            extra["client_host"],
            extra["seen_ms"],
            extra["request"],
            extra.get("is_connected", True),
        )
    return Owner(
        described.transactional_id,
        STATES_BY_LABEL[described.label],
        described.producer_id,
        described.producer_epoch,
        described.timeout_ms,
        described.start_ms if described.start_ms >= 0 else None,
        described.partitions,
        extra.get("updated_ms"),
        client,
        tells_client=bool(extra),
    )


def _producers_wanted(topics: Mapping[str, Sequence[int]]) -> Fields:
    return {
        "topics": [
            {"name": topic, "partition_indexes": indexes} for topic, indexes in topics.items()
        ]
    }
