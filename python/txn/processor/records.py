"""The values that a handler gets and returns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from confluent_kafka import Message

from txn.client.headers import headers_of
from txn.errors import RejectedError
from txn.identifiers import TopicPartition as Place

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record:
    """A record of an input topic.

    A record that comes back from a retry topic has the topic, partition, offset, timestamp and
    headers that it had in its input topic, so a handler does not see the difference.

    Attributes:
        topic: Its input topic.
        partition: Its partition there.
        offset: Its offset there.
        timestamp_ms: Milliseconds since 1970; None if it has no timestamp.
        key: Its key.
        value: Its value; None is a tombstone.
        headers: Names and values, in order.
        attempts: How often the handler has failed on it in earlier stages of its retries.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    attempts: int = 0

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} offset {self.offset}"


@dataclass(frozen=True, slots=True)
class Output:
    """A record to produce.

    Attributes:
        topic: Where it goes.
        value: Its value; None is a tombstone.
        key: Its key; records of one key go to one partition.
        headers: Names and values.
        partition: Which partition; None: by the key.
        timestamp_ms: Milliseconds since 1970; None: now.
    """

    topic: str
    value: str | bytes | None = None
    key: str | bytes | None = None
    headers: Sequence[tuple[str, str | bytes | None]] = field(default=())
    partition: int | None = None
    timestamp_ms: int | None = None


One = str | bytes | Output
Returned = One | Iterable[One] | None
"""What a handler may return."""


def record_of(message: Message) -> Record:
    """Return a message of a consumer as a record, without headers whose names are no UTF-8."""
    kind, timestamp = message.timestamp()
    topic, partition = place_of(message)
    return Record(
        topic,
        partition,
        offset_of(message),
        timestamp if kind and timestamp >= 0 else None,
        _bytes(message.key()),
        _bytes(message.value()),
        tuple((name, _bytes(value)) for name, value in headers_of(message)[0]),
    )


def place_of(message: Message) -> Place:
    """Return the topic and partition of a message of a consumer."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return topic, partition


def offset_of(message: Message) -> int:
    """Return the offset of a message of a consumer."""
    offset = message.offset()
    assert offset is not None
    return offset


def outputs_of(returned: object, record: Record | None, topic: str | None) -> list[Output]:
    """Return the outputs of a handler.

    Args:
        returned: What the handler returned.
        record: The record, whose key a plain value keeps; None: of a batch.
        topic: The topic of plain values.

    Raises:
        RejectedError: it is none of the values that a handler may return.
    """
    if returned is None:
        return []
    if isinstance(returned, Output):
        return [returned]
    if isinstance(returned, (str, bytes)):
        if topic is None:
            raise RejectedError(
                "the handler returned a value, and the processor has no output topic. Give "
                "Processor(output=…), or return an Output(topic, value)"
            )
        return [Output(topic, returned, None if record is None else record.key)]
    if isinstance(returned, Iterable) and not isinstance(returned, (dict, bytearray, memoryview)):
        return [each for item in returned for each in outputs_of(_one(item), record, topic)]
    raise _unfit(returned)


def _one(item: object) -> object:
    if isinstance(item, (str, bytes, Output)):
        return item
    raise _unfit(item)


def _unfit(returned: object) -> RejectedError:
    return RejectedError(
        f"the handler returned {type(returned).__name__}; return None, bytes, a str, an Output, or "
        "a list of them. Encode other values, as json.dumps does"
    )


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content
