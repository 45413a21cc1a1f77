"""The kit's own client: topics, records, groups and transactions of a test's broker.

It goes to the broker itself, or passes the proxy untouched, so that no fault of a test harms the
test's own questions. One instance serves every thread, one after the other.
"""

import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

from txn import _core
from txn.cluster.brokers import RemoteBroker
from txn.errors import RejectedError, RetriableError
from txn.hints import did_you_mean
from txn.testing.proxy import KIT_CLIENT_ID
from txn.wire.api_keys import ApiKey
from txn.wire.error_codes import ErrorCode

TIMEOUT_MS: Final = 10_000
ADVICE: Final = "Is the broker killed, or its process stopped?"
TRANSACTION_TIMEOUT_MS: Final = 60_000
ISOLATIONS: Final = ("read_committed", "read_uncommitted")
PREPARING: Final = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
DEAD: Final = "Dead"
NO_OFFSET: Final = -1
LEAVING: Final = -1
"""The member epoch with which a member of KIP-848 leaves."""
CLASSIC_MEMBER: Final = 0
NO_PRODUCER: Final = (-1, -1)
ABORTED_ID: Final = "txn-testing-aborted"
DEFAULT: Final = -1
"""Stands for the broker's own number of replicas."""

T = TypeVar("T")

Columns = Mapping[str, Any]
"""Rows as buffers: `Columns` of `txn/_core.pyi`."""


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = field(default=())


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group: the ids of its members, and the topics that they subscribe to.

    `heartbeating` are the members that speak KIP-848's protocol, `group.protocol=consumer`.
    """

    state: str
    members: tuple[str, ...]
    topics: frozenset[str]
    heartbeating: frozenset[str] = frozenset()


class KitClient:
    """Asks and commands a broker through its proxy."""

    def __init__(self, servers: str, port: Callable[[], int]) -> None:
        """`servers` is the proxy's address; `port` returns the port of the broker behind it."""
        self._servers = servers
        self._port = port
        self._lock = threading.Lock()
        self._kafka: _core.KafkaClient | None = None
        self._is_open = True

    def close(self) -> None:
        """Close the connections; calls of other threads that wait for their turn are refused."""
        with self._lock:
            self._is_open = False
            self._drop()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Close the connections, and let calls of other threads wait until the block ends."""
        with self._lock:
            self._require_open()
            self._drop()
            yield

    # ------------------------------------------------------------ topics and records

    def create_topic(self, name: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic. Raises RejectedError: it exists, or the broker refuses."""
        topic = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": DEFAULT,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in config.items()],
        }
        fields = {"topics": [topic], "timeout": TIMEOUT_MS, "validate_only": False}
        [made] = self._call(ApiKey.CREATE_TOPICS, range(4, 5), fields).topics
        if made.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
            raise RejectedError(f"topic {name!r} exists; give another name, or none", topic=name)
        if made.error_code:
            reason = made.error_message or ErrorCode(made.error_code).name
            raise RejectedError(f"topic {name!r} is not made: {reason}", topic=name)

    def topics(self) -> list[str]:
        """The names of all topics but internal ones, sorted."""
        return self._ask(lambda kafka: kafka.topics())

    def partition_count(self, topic: str) -> int:
        """Number of partitions. Raises RejectedError: there is no such topic."""
        [found] = self._ask(lambda kafka: kafka.describe_topics([topic]))
        if found is None:
            known = self.topics()
            hint = did_you_mean(topic, known) or (
                f". Topics are {', '.join(known)}"
                if known
                else f": call create_topic({topic!r}) first"
            )
            raise RejectedError(f"topic {topic!r} is not there{hint}", topic=topic)
        return found[0]

    def ends(self, topic: str, *, isolation: str = ISOLATIONS[0]) -> list[int]:
        """The readable end of each partition: last stable offset or high watermark."""
        is_committed = is_read_committed(isolation)
        partitions = range(self.partition_count(topic))
        return self._ask(
            lambda kafka: kafka.list_offsets(
                topic, list(partitions), -1, read_committed=is_committed
            )
        )

    def starts(self, topic: str) -> list[int]:
        """The first offset of each partition that was not deleted."""
        partitions = range(self.partition_count(topic))
        return self._ask(lambda kafka: kafka.list_offsets(topic, list(partitions), -2))

    def write(
        self,
        topic: str,
        records: Sequence[tuple[bytes | None, bytes | None]],
        partition: int | None = None,
        *,
        aborted: bool = False,
    ) -> None:
        """Append (key, value) records; without `partition` by the hash of the key, or in turn.

        `aborted`: in a transaction that is aborted then.
        """
        count = self.partition_count(topic)
        if partition is not None and not 0 <= partition < count:
            raise RejectedError(
                f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}", topic=topic
            )
        numbers = (
            None
            if partition is None
            else struct.pack(f"{len(records)}i", *[partition] * len(records))
        )

        def write(kafka: _core.KafkaClient) -> None:
            id = ABORTED_ID if aborted else None
            identity = _init_producer(kafka, id) if id else NO_PRODUCER
            writer = kafka.writer(id, *identity)
            keys, values = (_column([each[side] for each in records]) for side in (0, 1))
            writer.write(topic, len(records), keys, values, partition=numbers)
            writer.flush()
            if id:
                kafka.end_txn(id, *identity, commit=False)

        if records:
            self._ask(write)

    def read(
        self, topic: str, *, isolation: str = ISOLATIONS[0], starts: Mapping[int, int] | None = None
    ) -> list[Record]:
        """The records between a partition's start and its readable end.

        Args:
            topic: The topic.
            isolation: "read_committed" or "read_uncommitted".
            starts: First offset by partition, of these partitions alone; None: all, from the
                beginning.

        Returns:
            By partition, then by offset.
        """
        is_committed = is_read_committed(isolation)
        ends = self.ends(topic, isolation=isolation)
        if starts is None:
            starts = dict(enumerate(self.starts(topic)))
        found: list[Record] = []
        for partition, start in sorted(starts.items()):
            if start >= ends[partition]:
                continue

            def fetch(
                kafka: _core.KafkaClient, partition: int = partition, start: int = start
            ) -> list[Record]:
                chunks = kafka.fetch(
                    topic,
                    partition,
                    start,
                    ends[partition],
                    read_committed=is_committed,
                    include_headers=True,
                )
                return [record for chunk in chunks for record in _records(topic, partition, chunk)]

            found += self._ask(fetch)
        return found

    # ------------------------------------------------------------ groups

    def groups(self) -> list[str]:
        """The ids of all groups."""
        answer = self._call(ApiKey.LIST_GROUPS, range(4), {})
        return sorted(str(group.group_id) for group in answer.groups)

    def group(self, group_id: str) -> Group:
        """Describe a group of either protocol; one that is not there is Dead, without members."""
        fields = {"group_ids": [group_id], "include_authorized_operations": False}
        [described] = self._call(ApiKey.CONSUMER_GROUP_DESCRIBE, range(1, 2), fields).groups
        if not described.error_code:
            return _consumer_group(described)
        fields = {"groups": [group_id], "include_authorized_operations": False}
        answer = self._call(ApiKey.DESCRIBE_GROUPS, range(5), fields)
        [found] = answer.groups
        members = tuple(str(member.member_id) for member in found.members)
        topics = {
            topic
            for member in found.members
            for topic in _subscribed(bytes(member.member_metadata))
        }
        return Group(str(found.group_state), members, frozenset(topics))

    def committed(self, group_id: str) -> dict[tuple[str, int], int]:
        """The committed offsets of a group by (topic, partition)."""
        fields = {"group_id": group_id, "topics": None, "require_stable": False}
        answer = self._call(ApiKey.OFFSET_FETCH, range(2, 8), fields)
        return {
            (str(topic.name), int(partition.partition_index)): int(partition.committed_offset)
            for topic in answer.topics
            for partition in topic.partitions
            if partition.committed_offset != NO_OFFSET
        }

    def remove_members(self, group_id: str) -> int:
        """Remove every member of a group of either protocol; return their number.

        A classic member leaves by LeaveGroup, as an administrator removes it. One of KIP-848 leaves
        by the last heartbeat of its own protocol. Both join again by themselves.
        """
        group = self.group(group_id)
        if not group.members:
            hint = did_you_mean(group_id, self.groups()) or ". Wait until its consumers joined it"
            raise RejectedError(f"group {group_id!r} has no members{hint}")
        for member_id in group.heartbeating:
            fields = {
                "group_id": group_id,
                "member_id": member_id,
                "member_epoch": LEAVING,
                "topic_partitions": None,
            }
            answer = self._call(ApiKey.CONSUMER_GROUP_HEARTBEAT, range(2), fields)
            if answer.error_code != ErrorCode.UNKNOWN_MEMBER_ID:  # it has just left by itself
                _require_none(answer.error_code, f"group {group_id!r} kept its member {member_id}")
        classic = [id for id in group.members if id not in group.heartbeating]
        if classic:
            members = [{"member_id": id, "group_instance_id": None} for id in classic]
            fields = {"group_id": group_id, "members": members}
            answer = self._call(ApiKey.LEAVE_GROUP, range(3, 5), fields)
            _require_none(answer.error_code, f"group {group_id!r} kept its members")
        return len(group.members)

    # ------------------------------------------------------------ transactions

    def transactions(self, states: Sequence[str] = ()) -> dict[str, str]:
        """State by transactional id, of all or of those in some states."""
        listed = self._ask(lambda kafka: kafka.list_transactions(list(states), ""))
        return {transactional_id: state for transactional_id, _, state in listed}

    def fence(self, transactional_id: str) -> None:
        """Take over a transactional id. Raises RejectedError: no producer has it."""
        known = self.transactions()
        if transactional_id not in known:
            hint = did_you_mean(transactional_id, known) or (
                ". Wait until its producer has called init_transactions()"
            )
            raise RejectedError(f"transactional id {transactional_id!r} is not in use{hint}")
        self._ask(lambda kafka: _init_producer(kafka, transactional_id))

    # ------------------------------------------------------------ one request at a time

    def _call(self, key: ApiKey, versions: range, fields: dict[str, Any]) -> Any:
        def call(kafka: _core.KafkaClient) -> Any:
            broker = RemoteBroker(kafka, "127.0.0.1", self._port(), ADVICE)
            return broker.call(key, versions, fields)

        return self._ask(call)

    def _ask(self, question: Callable[[_core.KafkaClient], T]) -> T:
        with self._lock:
            self._require_open()
            try:
                return question(self._client())
            except (RetriableError, _core.KafkaError) as error:
                # The connection may be of before a restart: once more over another one.
                if isinstance(error, _core.KafkaError) and not error.args[2]:
                    raise RejectedError(str(error), code=error.args[1]) from error
                self._drop()
            try:
                return question(self._client())
            except _core.KafkaError as error:
                kind = RetriableError if error.args[2] else RejectedError
                raise kind(str(error), code=error.args[1]) from error

    def _client(self) -> _core.KafkaClient:
        if self._kafka is None:
            self._kafka = _core.KafkaClient(
                self._servers, client_id=KIT_CLIENT_ID, timeout_ms=TIMEOUT_MS
            )
        return self._kafka

    def _require_open(self) -> None:
        if not self._is_open:
            raise RejectedError("another thread closed this test broker; open another one")

    def _drop(self) -> None:
        if self._kafka is not None:
            self._kafka.close()
            self._kafka = None


def _init_producer(kafka: _core.KafkaClient, transactional_id: str) -> tuple[int, int]:
    """Initialise a transactional id, halving the timeout while the broker finds it too long."""
    timeout_ms = TRANSACTION_TIMEOUT_MS
    while True:
        try:
            return kafka.init_producer_id(transactional_id, timeout_ms)
        except _core.KafkaError as error:
            if error.args[1] != ErrorCode.INVALID_TRANSACTION_TIMEOUT or timeout_ms == 1:
                raise
        timeout_ms //= 2


def is_read_committed(isolation: str) -> bool:
    """Read an isolation level by Kafka's name. Raises RejectedError."""
    if isolation not in ISOLATIONS:
        raise RejectedError(f"isolation is {' or '.join(ISOLATIONS)}, not {isolation!r}")
    return isolation == ISOLATIONS[0]


def _require_none(code: int, message: str) -> None:
    if code:
        raise RejectedError(f"{message}: {ErrorCode(code).name}", code=int(code))


def _consumer_group(described: Any) -> Group:
    """A group as ConsumerGroupDescribe returns it (KIP-848)."""
    members = described.members
    topics = {str(name) for member in members for name in member.subscribed_topic_names}
    topics |= {  # those that match a regular expression
        str(topic.topic_name) for member in members for topic in member.assignment.topic_partitions
    }
    heartbeating = (m.member_id for m in members if m.member_type != CLASSIC_MEMBER)
    ids = tuple(str(member.member_id) for member in members)
    return Group(str(described.group_state), ids, frozenset(topics), frozenset(heartbeating))


def _subscribed(metadata: bytes) -> list[str]:
    """The topics of a consumer's subscription; none if its client wrote bytes of its own.

    Source: Kafka's ConsumerProtocolSubscription.
    """
    topics, at = [], 6
    try:
        (count,) = struct.unpack_from(">i", metadata, 2)
        for _ in range(count):  # each has a length, so the bytes end before a false count does
            (size,) = struct.unpack_from(">H", metadata, at)
            topics.append(metadata[at + 2 : at + 2 + size].decode())
            at += 2 + size
    except (struct.error, UnicodeDecodeError):
        return []
    return topics


def _records(topic: str, partition: int, columns: Columns) -> Iterable[Record]:
    """The rows of fetched columns; `txn._core.Columns` has their layout."""
    rows = int(columns["rows"])
    offsets = _numbers(columns["offsets"], "q")
    timestamps_ms = _numbers(columns["timestamps_ms"], "q")
    keys, values = _texts(columns, "key", rows), _texts(columns, "value", rows)
    lists = _numbers(columns["header_list_offsets"], "i")
    names = _texts(columns, "header_key", lists[rows])
    contents = _texts(columns, "header_value", lists[rows])
    for row in range(rows):
        headers = tuple(
            ((names[at] or b"").decode("utf-8", "replace"), contents[at])
            for at in range(lists[row], lists[row + 1])
        )
        yield Record(
            topic, partition, offsets[row], timestamps_ms[row], keys[row], values[row], headers
        )


def _numbers(buffer: Any, code: Literal["i", "q"]) -> "memoryview[int]":
    return memoryview(buffer).cast("B").cast(code)


def _texts(columns: Columns, name: str, count: int) -> list[bytes | None]:
    ends = _numbers(columns[f"{name}_offsets"], "i")
    data = memoryview(columns[f"{name}_data"]).cast("B")
    validity = columns.get(f"{name}_validity")
    bits = None if validity is None else memoryview(validity).cast("B")
    return [
        bytes(data[ends[at] : ends[at + 1]])
        if bits is None or bits[at >> 3] >> (at & 7) & 1
        else None
        for at in range(count)
    ]


def _column(texts: Sequence[bytes | None]) -> tuple[bytes, bytes, bytes | None]:
    """The offsets, the data and the validity bits of a column."""
    ends = [0]
    bits = bytearray((len(texts) + 7) // 8)
    for at, text in enumerate(texts):
        ends.append(ends[-1] + len(text or b""))
        bits[at >> 3] |= (text is not None) << (at & 7)
    data = b"".join(text or b"" for text in texts)
    return struct.pack(f"{len(ends)}i", *ends), data, bytes(bits) if None in texts else None
